//go:build race

package securechannel

const raceEnabled = true
