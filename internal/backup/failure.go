package backup

import (
	"errors"
	"fmt"
)

// reasonError is why a Task failed: an error with the Reason that the operator
// reports.
type reasonError struct {
	Reason Reason
	// Permanent: trying again cannot help.
	Permanent bool
	// Err says it to a person. It holds no secret.
	Err error
}

// Error is the text for people, without the reason.
func (f *reasonError) Error() string { return f.Err.Error() }

// Unwrap returns the cause, for errors.Is and errors.As.
func (f *reasonError) Unwrap() error { return f.Err }

// fail makes an error that trying again may end.
func fail(reason Reason, format string, args ...any) error {
	return &reasonError{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// refuse makes an error that stays.
func refuse(reason Reason, format string, args ...any) error {
	return &reasonError{Reason: reason, Permanent: true, Err: fmt.Errorf(format, args...)}
}

// classified gives an error that has no reason yet the one that is due where it
// came up.
func classified(err error, reason Reason, doing string) error {
	if err == nil {
		return nil
	}
	var f *reasonError
	if errors.As(err, &f) {
		return err
	}
	return &reasonError{Reason: reason, Err: fmt.Errorf("%s: %w", doing, err)}
}

// isReason tells whether an error is a Failure of a reason.
func isReason(err error, reason Reason) bool {
	var f *reasonError
	return errors.As(err, &f) && f.Reason == reason
}
