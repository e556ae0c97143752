package backup

import (
	"context"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ServePort is where OperationServe listens.
const ServePort = 8080

// serveShutdown is how long what is being read may go on when the work is to end.
const serveShutdown = 5 * time.Second

// serve hands the objects of one backup to the Pods that are filled from it: a volume
// can often be mounted on one node only, where not all of them run. It blocks until
// the context ends. Whoever asks has to know the password of the Task.
func serve(ctx context.Context, t *Task, st store) (Result, error) {
	folder, ok := st.(*directory)
	if !ok {
		return Result{}, refuse(ReasonInvalid, "only a backup in a directory is served")
	}
	password, err := readPassword(t.PasswordFile)
	if err != nil {
		return Result{}, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(ServePort))
	if err != nil {
		return Result{}, fail(ReasonStoreUnavailable, "serve the backup: %w", err)
	}
	return Result{Location: folder.location()}, serveOn(ctx, l, folder.path, t.Username, password)
}

func serveOn(ctx context.Context, l net.Listener, folder, username, password string) error {
	files := http.FileServerFS(os.DirFS(folder))
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, given, _ := r.BasicAuth()
			if user != username || subtle.ConstantTimeCompare([]byte(given), []byte(password)) != 1 {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			files.ServeHTTP(w, r)
		}),
	}
	go func() {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), serveShutdown)
		defer cancel()
		_ = server.Shutdown(stop) // what is still read then is read again by its Pod
	}()
	if err := server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fail(ReasonStoreUnavailable, "serve the backup: %w", err)
	}
	return nil
}

// readPassword is the first line of a file.
func readPassword(path string) (string, error) {
	data, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return "", refuse(ReasonInvalid, "the password: %w", err)
	}
	password, _, _ := strings.Cut(string(data), "\n")
	if password == "" {
		return "", refuse(ReasonInvalid, "the password in %s is empty", path)
	}
	return password, nil
}
