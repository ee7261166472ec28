package stack

import "sync/atomic"

// requestCost is what a request of a size is charged while the server holds it.
type requestCost struct {
	most    int64
	encoded atomic.Bool // CostEncoded is in force
}

func newRequestCost(o *Options) *requestCost {
	c := &requestCost{most: int64(o.Limits.MaxMessageSize)}
	c.encoded.Store(o.RequestCost == CostEncoded)
	return c
}

func (c *requestCost) of(size int) int64 {
	if c.encoded.Load() {
		return min(c.most, 4*int64(size)+4096)
	}
	return c.most
}
