//go:build !linux

package uatcp

// rawWrite is empty where there is no raw path.
type rawWrite struct{}

func (c *conn) read() { c.readConn() }

// TryWrite implements transport.Socket: the goroutine for slow peers writes.
func (c *conn) TryWrite([]byte) (int, error) { return 0, nil }

func (c *conn) initSocket() {}
