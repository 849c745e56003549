// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"encoding/json"
	"fmt"
	"time"

	"example.com/extension-apiserver/internal/certs"
)

// StateFile is the record of a rotation, in its own set. The sets below it contain the new key
// pairs until they are used, and copies of the old ones until the rotation ends.
const (
	StateFile = "state.json"

	servingState    = "rotation"
	frontProxyState = "front-proxy-rotation"
)

// StateSet returns the set with the record of a rotation. Serving and front-proxy certificates
// have separate records, so that a blocked front-proxy rotation, for example by a third-party
// API, does not prevent the renewal of the serving certificate.
func StateSet(rotation string) string {
	if ofFrontProxy(rotation) {
		return frontProxyState
	}
	return servingState
}

// State is the record of a rotation in StateFile. It is written before a step begins and after
// it was observed, so that the next run can resume after an interruption at any point.
type State struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`     // RotationState
	Rotation   string    `json:"rotation"` // see Rotations
	StartedAt  time.Time `json:"startedAt"`
	// FrontProxyClientDirs are those of Options, as absolute paths, if any were given. A
	// rotation must finish in the directories in which it began.
	FrontProxyClientDirs []string `json:"frontProxyClientDirs,omitempty"`
	// NewCA is the SHA-256 of the NewCA in Options, if one was given.
	NewCA string `json:"newCA,omitempty"`
	// Others maps the Services of third-party aggregated APIs, as NAMESPACE/NAME, to how the
	// rotation checks them.
	Others map[string]Check `json:"others,omitempty"`
	// Steps are the steps that have begun, in order. The last one is in progress unless it was
	// observed.
	Steps []StepState `json:"steps"`
	// Blocked is the reason why the last run stopped early; empty if it did not.
	Blocked string `json:"blocked,omitempty"`
	// Aborting is true while the rotation is being undone.
	Aborting bool `json:"aborting,omitempty"`
	// Outcome is empty while the rotation is unfinished.
	Outcome Outcome `json:"outcome,omitempty"`
	// EndedAt is the time at which Outcome was set.
	EndedAt *time.Time `json:"endedAt,omitempty"`
}

// StepState is the record of one step.
type StepState struct {
	Name       string     `json:"name"`
	StartedAt  time.Time  `json:"startedAt"`
	ObservedAt *time.Time `json:"observedAt,omitempty"` // its effect was observed everywhere
	FinishedAt *time.Time `json:"finishedAt,omitempty"` // the hold was over
}

// Check is how a rotation checks a third-party aggregated API.
type Check string

// The checks.
const (
	CheckByProbe Check = "probe" // whether its endpoints accept the front proxy's certificate, and for responses
	// CheckByResponse checks for responses only; the API's endpoints did not confirm the
	// certificate in use.
	CheckByResponse Check = "answer"
	CheckNone       Check = "left out" // no check; it did not respond
)

// setCheck records how a third-party API is checked.
func (s *State) setCheck(service certs.Service, look Check) {
	if s.Others == nil {
		s.Others = map[string]Check{}
	}
	s.Others[service.Namespace+"/"+service.Name] = look
}

// Outcome is the outcome of a rotation.
type Outcome string

// The outcomes.
const (
	Done    Outcome = "done"
	Aborted Outcome = "aborted"
)

// Unfinished reports whether the rotation has begun and has no outcome yet.
func (s *State) Unfinished() bool { return s != nil && s.Outcome == "" }

// ReadState reads the record of the last rotation of the same certificates. It returns nil if
// there was none, and *certs.RefusedError if the record is unreadable or belongs to other
// certificates.
func ReadState(store certs.Store, rotation string) (*State, error) {
	set := StateSet(rotation)
	files, err := store.Read(set, StateFile)
	if err != nil {
		return nil, err
	}
	file, ok := files[StateFile]
	if !ok {
		return nil, nil
	}
	s, path := &State{}, store.Path(set, StateFile)
	if err := json.Unmarshal(file.Data, s); err != nil {
		return nil, &certs.RefusedError{Path: path, Reason: fmt.Sprintf(
			"expected the record of a rotation, found other content (%v); restore it from a backup", err)}
	}
	if s.APIVersion != certs.APIVersion || s.Kind != stateKind {
		return nil, &certs.RefusedError{Path: path, Reason: fmt.Sprintf(
			"expected %s %s, found %q %q; use the version of certgen that wrote it",
			certs.APIVersion, stateKind, s.APIVersion, s.Kind)}
	}
	if StateSet(s.Rotation) != set {
		return nil, &certs.RefusedError{Path: path, Reason: fmt.Sprintf(
			"expected the record of a rotation of these certificates, found one of %q; restore the right one from a "+
				"backup, or move it away", s.Rotation)}
	}
	return s, nil
}

const stateKind = "RotationState"

// write replaces the record in one step. The record is durable when write returns, because a
// step must never be ahead of it.
func (s *State) write(store certs.Store, set string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode state of rotation: %w", err)
	}
	return store.Write(set, certs.Files{StateFile: {Data: append(data, '\n'), Mode: 0o644}})
}

// EventType is the type of an event.
type EventType string

// The types of events, in the order in which they occur in a step.
const (
	EventNote     EventType = "note" // Message is information that does not stop the rotation
	EventStarted  EventType = "started"
	EventResumed  EventType = "resumed" // begun by an earlier run
	EventWaiting  EventType = "waiting" // Message is the missing observation
	EventObserved EventType = "observed"
	EventHolding  EventType = "holding"
	EventFinished EventType = "finished"
	EventUndone   EventType = "undone"
	EventBlocked  EventType = "blocked"
	EventEnded    EventType = "ended" // of the rotation: Message is its outcome
)

const eventKind = "RotationEvent"

// Event reports the progress of a rotation.
type Event struct {
	Kind           string    `json:"kind"` // RotationEvent
	Time           time.Time `json:"time"`
	Rotation       string    `json:"rotation"`
	Step           string    `json:"step,omitempty"`
	StepKind       StepKind  `json:"stepKind,omitempty"`
	Type           EventType `json:"type"`
	Message        string    `json:"message,omitempty"`
	ElapsedSeconds float64   `json:"elapsedSeconds"` // since the step began, or the rotation
}
