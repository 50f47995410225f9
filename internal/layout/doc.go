// Package layout holds the source tree to its layout: which folders there are, and in
// which direction packages import each other. It consists of a test.
package layout
