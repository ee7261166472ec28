//go:build !race

package addressspace

const raceEnabled = false
