// Package service implements the service sets of OPC 10000-4 §5 between a
// decoded request header and an encoded response: one table of all services as
// data ([Table]), and one handler per service.
//
// A handler reads its operands one by one from the request's bytes with a
// [uabinary.Decoder] and appends each result to [Request.Out], behind the type
// id and ResponseHeader that are there already. It never sees the connection,
// the queue or the limits of the server as a whole: package stack does, before
// it calls one. A status code other than Good turns whatever has been appended
// into a ServiceFault.
package service
