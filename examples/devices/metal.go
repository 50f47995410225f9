//go:build darwin || metalemu

package devices

import _ "github.com/minfer/minfer/backend/metal" // registers the device
