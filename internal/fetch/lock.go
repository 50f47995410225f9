package fetch

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// lockPoll is how often a lock that another process holds is tried again: systems have no
// waiting for file locks that a context could end.
const lockPoll = 100 * time.Millisecond

// locked holds, for each lock of this process, a channel that closes when it is released.
var locked struct {
	sync.Mutex
	paths map[string]chan struct{}
}

// lock waits for the lock of a path, among goroutines and processes.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	if err := lockHere(ctx, path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		unlockHere(path)
		return nil, storage(err)
	}
	held, err := lockFile(ctx, path)
	if err != nil {
		unlockHere(path)
		return nil, err
	}
	// The file stays: another process may have opened it to wait for the lock, and a third
	// would then lock a new file of the same name.
	return func() { held.Close(); unlockHere(path) }, nil
}

func lockHere(ctx context.Context, path string) error {
	for {
		locked.Lock()
		holder, busy := locked.paths[path]
		if !busy {
			if locked.paths == nil {
				locked.paths = make(map[string]chan struct{})
			}
			locked.paths[path] = make(chan struct{})
		}
		locked.Unlock()
		if !busy {
			return nil
		}
		select {
		case <-holder:
		case <-ctx.Done():
			return waited(ctx)
		}
	}
}

func unlockHere(path string) {
	locked.Lock()
	defer locked.Unlock()
	close(locked.paths[path])
	delete(locked.paths, path)
}

func lockFile(ctx context.Context, path string) (io.Closer, error) {
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		held, err := tryLock(path)
		if err != nil {
			return nil, &Error{Kind: ErrStorage, Detail: "the lock cannot be taken; if the file system has no locks, choose another folder with MINFER_CACHE", Err: err}
		}
		if held != nil {
			return held, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, waited(ctx)
		}
	}
}

func waited(ctx context.Context) error {
	return &Error{Detail: "stopped while waiting for another download of the same model", Err: ctx.Err()}
}
