module github.com/minfer/minfer

go 1.26.0

require (
	github.com/ardanlabs/jinja v1.8.0 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	golang.org/x/exp v0.0.0-20250819193227-8b4c13bb791b // indirect
	golang.org/x/sys v0.43.0 // indirect
	golang.org/x/text v0.31.0 // indirect
)
