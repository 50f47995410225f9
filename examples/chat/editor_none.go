//go:build !unix && !windows

package main

// newEditor says that there is no line editor for this platform; lines are read plainly.
func newEditor(*notes) (lineReader, bool) { return nil, false }
