//go:build !linux

package uatcp

import "net"

// listenConfig leaves keep-alive to package net.
func listenConfig() net.ListenConfig { return net.ListenConfig{} }
