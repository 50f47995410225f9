module github.com/minfer/minfer/examples

go 1.26.0

require (
	github.com/minfer/minfer v0.0.0
	github.com/openai/openai-go/v3 v3.12.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/tidwall/gjson v1.18.0 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
	gorgonia.org/cu v0.9.6 // indirect
)

require (
	github.com/ergochat/readline v0.1.3
	github.com/minfer/minfer/backend/cuda v0.0.0
	github.com/minfer/minfer/backend/metal v0.0.0
	golang.org/x/exp v0.0.0-20250819193227-8b4c13bb791b // indirect
	golang.org/x/sys v0.43.0 // indirect
	golang.org/x/term v0.42.0
	golang.org/x/text v0.39.0
)

replace github.com/minfer/minfer => ../

replace github.com/minfer/minfer/backend/cuda => ../backend/cuda

replace github.com/minfer/minfer/backend/metal => ../backend/metal
