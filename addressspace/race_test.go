//go:build race

package addressspace

const raceEnabled = true
