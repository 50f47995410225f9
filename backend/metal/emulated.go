//go:build metalemu && cgo

package metal

import _ "github.com/minfer/minfer/backend/metal/emu" // the device that this build finds instead of Apple's
