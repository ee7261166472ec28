// Package uabinary is OPC UA Binary (OPC 10000-6 §5.2) for gopcua's `ua` types: generated, bounded, without reflection.
package uabinary

//go:generate go run ./internal/gen
