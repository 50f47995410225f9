//go:build !race

package minfer_test

const raceEnabled = false
