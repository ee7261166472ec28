# shellcheck shell=bash
# OPC UA over HTTPS with curl and jq, for the scripts beside this file to source.
#
#   OPCUA_URL       the endpoint (opc.https://localhost:4843)
#   OPCUA_CA        PEM file of who vouches for the server's TLS certificate, or the
#                   certificate itself (default: the system's authorities)
#   OPCUA_USER      log in as this user, with OPCUA_PASSWORD (default: anonymous)
#   OPCUA_TOKEN     use this session, as ./open printed it (default: one of its own)
#   OPCUA_TRIES     how often a request is sent to a busy server (8)
#   OPCUA_TIMEOUT   seconds after which an answer is given up (60)
set -euo pipefail
endpoint=${OPCUA_URL:-opc.https://localhost:4843}
tls=()
[[ -z ${OPCUA_CA:-} ]] || tls=(--cacert "$OPCUA_CA")

# Numbers of the attributes, of the services' DataTypes (OPC 10000-6, Annex A) and of
# the built-in types (§5.1.2), as far as these scripts need them.
# shellcheck disable=SC2034
readonly value_attribute=13 get_endpoints=i=426 create_session=i=459 activate_session=i=465 close_session=i=471 \
  read_request=i=629 write_request=i=671 browse_request=i=525 browse_next=i=531 call_request=i=710 \
  create_subscription=i=785 create_monitored_items=i=749 publish_request=i=824
# In front of a jq program: variant("Double"; 4.5) and, of a StatusCode, good.
# shellcheck disable=SC2016,SC2034
readonly jq_definitions='
  def hex: "0x" + ([recurse(. / 16 | floor; . > 0) % 16 | "0123456789ABCDEF"[.:. + 1]] | reverse | join(""));
  def good: if (.Code // 0) >= 2147483648 then error("StatusCode " + (.Code | hex)) else . end;
  def builtin($name): {Boolean: 1, SByte: 2, Byte: 3, Int16: 4, UInt16: 5, Int32: 6, UInt32: 7, Int64: 8, UInt64: 9,
    Float: 10, Double: 11, String: 12, DateTime: 13, Guid: 14, ByteString: 15, NodeId: 17, StatusCode: 19, LocalizedText: 21
    }[$name] // error("unknown type " + $name);
  def variant($name; $value): {UaType: builtin($name), Value: $value};'

# say TEXT: tells whoever is at the terminal; standard output is for answers.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# pause MILLISECONDS WHY: waits that long and up to a tenth longer by chance, so that
# those who were refused together do not come back together.
pause() {
  local ms=$(($1 + $1 * (RANDOM % 101) / 1000))
  say "$2; again in $ms ms"
  sleep "$((ms / 1000)).$(printf '%03d' $((ms % 1000)))"
}

# post: sends the message on standard input and prints the answer, which is one whose
# ServiceResult is not bad. A refusal says that nothing was done, and when to come back:
#
#   429 and 503          in the header Retry-After, in seconds
#   BadServerTooBusy     in the parameter RetryAfterMs of the ResponseHeader
#   no connection        nothing; 1 s, 2 s, 4 s … 30 s
#
# When the connection breaks later than that, the request may have been carried out
# or not. Whoever repeats it has to know whether that does harm; post does not.
post() {
  local message answer exit status after result hint try wait
  message=$(cat)
  for ((try = 1; ; try++)); do
    # Everything secret is in the message, and that on standard input: others see
    # the arguments of a process.
    exit=0
    answer=$(curl --silent --show-error --max-time "${OPCUA_TIMEOUT:-60}" "${tls[@]}" \
      --header 'Content-Type: application/json' --data-binary @- \
      --write-out '\n%{http_code} %header{retry-after}' "${endpoint#opc.}" <<<"$message") || exit=$?
    read -r status after <<<"${answer##*$'\n'}"
    answer=${answer%$'\n'*}
    wait=$((try > 5 ? 30000 : 1000 << (try - 1)))
    if ((exit == 7 || exit == 35)); then # no connection, or none through TLS
      answer="no connection"
    elif ((exit != 0)); then
      return "$exit" # curl has said why
    elif [[ $status == 429 || $status == 503 ]]; then
      [[ ! $after =~ ^[0-9]+$ ]] || wait=$((after * 1000))
      answer="$status ${answer%$'\n'}"
    elif [[ $status != 200 ]]; then
      say "$status $answer"
      return 1
    else
      read -r result hint < <(jq -r '.ResponseHeader | "\(.ServiceResult.Code // 0) \(
        [.AdditionalHeader.Parameters[]? | select(.Key == "RetryAfterMs") | .Value.Value | tonumber][0] // 0)"' <<<"$answer")
      if ((result < 0x80000000)); then
        printf '%s\n' "$answer"
        return
      fi
      answer=$(printf 'ServiceResult 0x%08X' "$result")
      if ((result != 0x80EE0000)); then # BadServerTooBusy
        say "$answer"
        return 1
      fi
      ((hint == 0)) || wait=$hint
    fi
    if ((try >= ${OPCUA_TRIES:-8})); then
      say "$answer, $try times"
      return 1
    fi
    pause "$wait" "$answer"
  done
}

# request DATATYPE: puts the header in front of the fields on standard input, with the
# session's token when there is one, and posts it.
request() {
  jq -c --arg type "$1" '{UaTypeId: $type, RequestHeader: ({RequestHandle: 1, Timestamp: (now | todate)}
    + if env.OPCUA_TOKEN then {AuthenticationToken: env.OPCUA_TOKEN} else {} end)} + .' | post
}

# open_session: CreateSession and ActivateSession, unless there is a session already.
# One that is opened here is closed when the script ends.
open_session() {
  [[ -z ${OPCUA_TOKEN:-} ]] || return 0
  local created
  created=$(jq -nc --arg url "$endpoint" '{
      ClientDescription: {ApplicationUri: "urn:breakwater:examples:curl", ApplicationName: {Text: "curl"}, ApplicationType: 1},
      EndpointUrl: $url, SessionName: "curl", RequestedSessionTimeout: 60000}' | request $create_session)
  OPCUA_TOKEN=$(jq -r .AuthenticationToken <<<"$created")
  export OPCUA_TOKEN
  trap close_session EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  # The token's policy must be one of those that the server offers here. A password
  # is sent as it is, inside TLS, so it needs one that asks for no encryption besides.
  export OPCUA_USER=${OPCUA_USER:-} OPCUA_PASSWORD=${OPCUA_PASSWORD:-}
  jq -c '[.ServerEndpoints[] | select((.TransportProfileUri | endswith("/https-uajson")) and .SecurityMode == 1)][0].UserIdentityTokens
    | if env.OPCUA_USER == "" then
        {UaTypeId: "i=319", PolicyId: (map(select(.TokenType // 0 == 0))[0].PolicyId // error("the server wants a user name"))}
      else
        {UaTypeId: "i=322", UserName: env.OPCUA_USER, Password: (env.OPCUA_PASSWORD | @base64),
         PolicyId: (map(select(.TokenType == 1 and (.SecurityPolicyUri // "" | endswith("#None"))))[0].PolicyId
           // error("the server takes no password over HTTPS"))}
      end | {UserIdentityToken: .}' <<<"$created" | request $activate_session >/dev/null
}

# close_session: CloseSession, with the session's subscriptions.
close_session() {
  [[ -n ${OPCUA_TOKEN:-} ]] || return 0
  OPCUA_TRIES=2 request $close_session <<<'{"DeleteSubscriptions": true}' >/dev/null || true
  unset OPCUA_TOKEN
}
