//go:build cuda

package devices

import _ "github.com/minfer/minfer/backend/cuda" // registers the device
