package uabinary

func bodyTypeID(v any) uint32 { return 0 }
func (e *Encoder) body(v any) {}
func (d *Decoder) decodeBody(id uint32) any { return nil }
