//go:build !race

package grammar

const underRace = false
