module github.com/minfer/minfer/backend/metal

go 1.26.0

require (
	github.com/minfer/minfer v0.0.0
	golang.org/x/exp v0.0.0-20250819193227-8b4c13bb791b
)

require (
	golang.org/x/sys v0.43.0 // indirect
	golang.org/x/text v0.39.0 // indirect
)

replace github.com/minfer/minfer => ../..
