// Package load is uastorm's engine: very many cheap OPC UA clients that connect,
// read, write, subscribe and misbehave on purpose, by a schedule, against any
// server.
//
// A Target says where and how to connect. An Engine runs Phases against it and
// tells a measure.Recorder what happened. Its clients are not those of package
// client: each is one connection with small buffers and one goroutine, and of the
// many things that a product does on a session they do only what a load needs.
package load
