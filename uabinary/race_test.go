//go:build race

package uabinary

const raceEnabled = true
