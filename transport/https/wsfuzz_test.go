package https

import (
	"io"
	"testing"
	"testing/synctest"
)

// FuzzFrames sends arbitrary bytes behind a good upgrade: whatever they are, the
// connection ends and everything is given back.
func FuzzFrames(f *testing.F) {
	f.Add(true, frame(fin|opBinary, hello()))
	f.Add(true, append(frame(opBinary, hello()[:7]), frame(fin|opMore, hello()[7:])...))
	f.Add(false, frame(fin|opText, []byte(`{"UaTypeId":"i=629","RequestHeader":{"RequestHandle":1}}`)))
	f.Add(false, append(frame(fin|opPing, []byte("x")), frame(fin|opClose, []byte{3, 232})...))
	f.Fuzz(func(t *testing.T, chunks bool, in []byte) {
		synctest.Test(t, func(t *testing.T) {
			s := start(t, false, webSocket(nil))
			protocol := uajsonProtocol
			if chunks {
				protocol = uacp
			}
			ws := upgrade(t, s, protocol)
			go func() {
				_, _ = ws.Write(in)
				_ = ws.CloseWrite()
			}()
			_, _ = io.Copy(io.Discard, ws.r)
			_ = ws.Conn.Close()
			<-s.closed
		})
	})
}
