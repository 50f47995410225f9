module github.com/minfer/minfer

go 1.26

require (
	github.com/google/go-cmp v0.7.0
	golang.org/x/exp v0.0.0-20250819193227-8b4c13bb791b
	golang.org/x/sys v0.38.0
	golang.org/x/text v0.39.0
)
