//go:build race

package grammar

// underRace makes the expensive tests shorter: the race detector takes ten times the
// time, and they have one goroutine.
const underRace = true
