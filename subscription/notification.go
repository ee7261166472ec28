package subscription

import (
	"bytes"
	"encoding/binary"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// publishResponse appends a PublishResponse up to the NotificationMessage (OPC 10000-4 §5.14.5.2). more is the position of
// MoreNotifications.
func publishResponse(b []byte, r *parkedPublish, subscription uint32, available *retransmission, adding uint32, stamp uabinary.DateTime) (_ []byte, more int) {
	b = uabinary.AppendTypeID(b, id.PublishResponse_Encoding_DefaultBinary)
	b = uabinary.AppendResponseHeader(b, &uabinary.ResponseHeader{Timestamp: stamp, RequestHandle: r.handle})
	b = uabinary.AppendUint32(b, subscription)
	n := 0
	if available != nil {
		n = len(available.messages)
	}
	count := len(b)
	b = uabinary.AppendUint32(b, uint32(n))
	for i := range n {
		b = uabinary.AppendUint32(b, available.messages[i].sequence)
	}
	if adding != 0 {
		b = uabinary.AppendUint32(b, adding)
		binary.LittleEndian.PutUint32(b[count:], uint32(n+1))
	}
	return append(b, 0), len(b)
}

// publishResults appends what follows the NotificationMessage.
func publishResults(b []byte, r *parkedPublish) []byte {
	b = uabinary.AppendUint32(b, uint32(len(r.results)))
	for _, code := range r.results {
		b = uabinary.AppendStatusCode(b, code)
	}
	return uabinary.AppendInt32(b, -1) // no DiagnosticInfos
}

// messageHead appends the start of a NotificationMessage with the given number of NotificationData.
func messageHead(b []byte, sequence uint32, stamp uabinary.DateTime, data uint32) []byte {
	b = uabinary.AppendUint32(b, sequence)
	b = uabinary.AppendDateTime(b, stamp)
	return uabinary.AppendUint32(b, data)
}

// dataHead appends the start of an ExtensionObject; endData fills in the length of the body.
func dataHead(b []byte, encodingID uint32) (_ []byte, start int) {
	b = append(uabinary.AppendTypeID(b, encodingID), ua.ExtensionObjectBinary)
	b = append(b, 0, 0, 0, 0)
	return b, len(b)
}

func endData(b []byte, start int) {
	binary.LittleEndian.PutUint32(b[start-4:], uint32(len(b)-start))
}

// room is the largest NotificationMessage in bytes that the answer to r may hold.
func (p *publisher) room(r *parkedPublish, head int) int {
	room := p.engine.limits.Load().MaxNotificationMessageSize
	rest := head + 4*len(r.results) + 8
	for _, limit := range [...]int{r.ch.MaxResponseSize(), int(p.session.MaxResponseMessageSize())} {
		if limit > 0 {
			room = min(room, limit-rest)
		}
	}
	return room
}

// notify answers r with queued notifications of s (ReturnNotifications). The message is encoded once, into the response; the
// retransmission queue gets a copy of the bytes.
func (p *publisher) notify(s *subscription, r parkedPublish, stamp uabinary.DateTime) {
	e := p.engine
	s.mu.Lock()
	if s.ready == 0 { // deleted or disabled since the cycle looked
		s.mu.Unlock()
		s.more = false
		p.keepAlive(s, r, stamp)
		return
	}
	// Room for one more message is made before the numbers are listed, so that none is listed that goes away by this one.
	before := s.messages.bytes
	for len(s.messages.messages) >= e.limits.Load().MaxRetransmissionMessages {
		s.messages.discardOldest()
	}
	s.sequence = nextSequence(s.sequence)
	buf := buffer.Get(min(192+40*s.ready, 64<<10))
	b, more := publishResponse(buf.B, &r, s.id, &s.messages, s.sequence, stamp)
	start := len(b)
	b = messageHead(b, s.sequence, stamp, 1)
	b, body := dataHead(b, id.DataChangeNotification_Encoding_DefaultBinary)
	b = append(b, 0, 0, 0, 0)
	b, n := s.appendNotifications(b, start+p.room(&r, start), int(s.maxNotifications))
	left := s.ready > 0
	s.mu.Unlock()
	binary.LittleEndian.PutUint32(b[body:], uint32(n))
	b = uabinary.AppendInt32(b, -1) // no DiagnosticInfos
	endData(b, body)
	s.more = left
	if left && s.enabled {
		b[more] = 1
	}
	s.messages.add(message{s.sequence, bytes.Clone(b[start:])}, e.limits.Load(), int(e.retained.Load())-before)
	e.retained.Add(int64(s.messages.bytes - before))
	buf.B = publishResults(b, &r)
	p.turns++
	s.turn = p.turns
	e.messages.Add(1)
	e.notifications.Add(uint64(n))
	s.counts.notifications += uint32(n)
	p.out = append(p.out, response{r.ch, r.requestID, r.handle, buf, false})
}

// appendNotifications takes notifications from the ready items, oldest item first, until the message has most of them or
// end bytes. sub.mu is held.
func (s *subscription) appendNotifications(b []byte, end, most int) (_ []byte, n int) {
	end -= 4 // DiagnosticInfos
	for s.listHead != nil {
		it := s.listHead
		for it.is(flagReady) && it.queue.n > 0 {
			if n == most {
				return b, n
			}
			e := it.queue.at(0)
			mark := len(b)
			if b = appendNotification(b, it.clientHandle, e, it.timestamps); len(b) > end {
				if b = b[:mark]; n > 0 {
					return b, n
				}
				// One value alone is more than the client takes: say so instead of never getting past it.
				tooLarge := entry{value: &valueTooLarge, at: e.at, overflow: e.overflow}
				b = appendNotification(b, it.clientHandle, &tooLarge, it.timestamps)
			}
			w := e.weight()
			it.queue.drop()
			s.settle(-w)
			n++
		}
		it.set(flagTriggered, false)
		s.unlist()
		s.refresh(it)
	}
	return b, n
}

var valueTooLarge = uabinary.DataValue{Mask: ua.DataValueStatusCode, Status: ua.StatusBadEncodingLimitsExceeded}

// keepAlive answers r with a keep-alive: the number of the message that will come next and no data (OPC 10000-4 §5.14.1.1).
func (p *publisher) keepAlive(s *subscription, r parkedPublish, stamp uabinary.DateTime) {
	buf := buffer.Get(192 + 4*len(s.messages.messages) + 4*len(r.results))
	b, _ := publishResponse(buf.B, &r, s.id, &s.messages, 0, stamp)
	b = messageHead(b, nextSequence(s.sequence), stamp, 0)
	buf.B = publishResults(b, &r)
	p.turns++
	s.turn = p.turns
	p.out = append(p.out, response{r.ch, r.requestID, r.handle, buf, false})
}

// statusChange answers r with a StatusChangeNotification (OPC 10000-4 §7.25.4). It is not kept for Republish: the session
// no longer has the subscription.
func (p *publisher) statusChange(c statusChange, r parkedPublish, stamp uabinary.DateTime) {
	buf := buffer.Get(192 + 4*len(r.results))
	b, _ := publishResponse(buf.B, &r, c.subscription, nil, 0, stamp)
	b = messageHead(b, c.sequence, stamp, 1)
	b, body := dataHead(b, id.StatusChangeNotification_Encoding_DefaultBinary)
	b = uabinary.AppendStatusCode(b, c.code)
	b = append(b, 0) // no DiagnosticInfo
	endData(b, body)
	buf.B = publishResults(b, &r)
	p.out = append(p.out, response{r.ch, r.requestID, r.handle, buf, false})
}
