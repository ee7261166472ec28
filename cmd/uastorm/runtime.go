package main

import (
	"os"
	"runtime"
)

// setRuntime makes room beside the threads for private keys (security.CryptoGate),
// unless GOMAXPROCS says otherwise: else a storm of signatures would keep
// uastorm's own clock from being looked at.
func setRuntime() {
	if _, chosen := os.LookupEnv("GOMAXPROCS"); !chosen {
		runtime.GOMAXPROCS(2 * runtime.GOMAXPROCS(0))
	}
}
