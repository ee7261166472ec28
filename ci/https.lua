-- For wrk: posts the bodies of files in turn, and looks at every answer.
--   wrk … -s ci/https.lua URL -- CONTENT-TYPE FILE…
-- The last line is a JSON object: answers by status, those refused without a
-- Retry-After, those of status 200 that are neither an answer nor BadServerTooBusy with
-- a hint, and errors of connections.

local threads = {}

function setup(thread) table.insert(threads, thread) end

function init(args)
  kind = args[1]
  requests, at = {}, 0
  for i = 2, #args do
    local f = assert(io.open(args[i], "rb"))
    local body = f:read("*a")
    f:close()
    table.insert(requests, wrk.format("POST", nil, {["Content-Type"] = kind}, body))
  end
  ok, busy, slow, full, other, hintless, odd = 0, 0, 0, 0, 0, 0, 0
end

function request()
  at = at % #requests + 1
  return requests[at]
end

-- what is "answer", "busy" or "odd": a ReadResponse, a ServiceFault with
-- BadServerTooBusy and RetryAfterMs, or anything else.
local function what(body)
  if kind == "application/json" then
    if body:find('"UaTypeId":"i=632"', 1, true) then return "answer" end
    if body:find('"UaTypeId":"i=395"', 1, true) and body:find("2163081216", 1, true) and body:find("RetryAfterMs", 1, true) then
      return "busy"
    end
    return "odd"
  end
  if body:sub(1, 4) == "\1\0\122\2" then return "answer" end -- i=634
  if body:sub(1, 4) == "\1\0\141\1" and body:find("\0\0\238\128", 1, true) and body:find("RetryAfterMs", 1, true) then -- i=397
    return "busy"
  end
  return "odd"
end

function response(status, headers, body)
  if status == 200 then
    ok = ok + 1
    local w = what(body)
    if w == "busy" then busy = busy + 1 elseif w == "odd" then odd = odd + 1 end
    return
  end
  if status == 429 then slow = slow + 1 elseif status == 503 then full = full + 1 else other = other + 1 end
  local after
  for name, value in pairs(headers) do
    if name:lower() == "retry-after" then after = tonumber(value) end
  end
  if not after or after < 1 then hintless = hintless + 1 end
end

function done(summary)
  local sum = {}
  for _, name in ipairs({"ok", "busy", "slow", "full", "other", "hintless", "odd"}) do
    sum[name] = 0
    for _, thread in ipairs(threads) do sum[name] = sum[name] + thread:get(name) end
  end
  local e = summary.errors
  print(string.format('{"200": %d, "429": %d, "503": %d, "other": %d, "busy": %d, "hintless": %d, "odd": %d, "errors": %d}',
    sum.ok, sum.slow, sum.full, sum.other, sum.busy, sum.hintless, sum.odd, e.connect + e.read + e.write + e.timeout))
end
