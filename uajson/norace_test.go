//go:build !race

package uajson

const raceEnabled = false
