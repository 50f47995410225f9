//go:build !cgo || !(darwin || metalemu)

package metal

import (
	"errors"
	"runtime"

	"github.com/minfer/minfer/backend"
)

// available says why there is no device in this build.
func available() error {
	if runtime.GOOS == "darwin" {
		return errors.New("the program was built without cgo, which Metal is reached by: build with CGO_ENABLED=1 and Xcode's command line tools")
	}
	return errors.New("Metal is part of macOS, and this program was built for " + runtime.GOOS)
}

func open(backend.Config) (backend.Backend, error) { return nil, available() }
