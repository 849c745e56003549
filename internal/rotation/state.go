// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"encoding/json"
	"fmt"
	"time"

	"example.com/extension-apiserver/internal/certs"
)

// StateFile records a rotation, in a set of its own. Below that set are the new pairs until they are used, and copies
// of the old ones until the rotation ends.
const (
	StateFile = "state.json"

	servingState    = "rotation"
	frontProxyState = "front-proxy-rotation"
)

// StateSet is the set with the record of a rotation: one for the serving certificates, and one for the front proxy's,
// so that one of these that is blocked, as it may be by an API of others, does not keep the serving certificate from
// being renewed.
func StateSet(rotation string) string {
	if ofFrontProxy(rotation) {
		return frontProxyState
	}
	return servingState
}

// State is a rotation as StateFile records it: written before a step begins and after it was observed, so that a run
// that was killed anywhere is taken up where it was.
type State struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`     // RotationState
	Rotation   string    `json:"rotation"` // see Rotations
	StartedAt  time.Time `json:"startedAt"`
	// FrontProxyClientDirs are those of Options, absolute, if any were given: what was begun in them must be
	// ended in them.
	FrontProxyClientDirs []string `json:"frontProxyClientDirs,omitempty"`
	// NewCA is the SHA-256 of that of Options, if one was given.
	NewCA string `json:"newCA,omitempty"`
	// Others says how the rotation looks at each Service of another aggregated API, NAMESPACE/NAME.
	Others map[string]Check `json:"others,omitempty"`
	// Steps are those that were begun, in order. The last one is under way unless it was observed.
	Steps []StepState `json:"steps"`
	// Blocked is why the last run stopped in between; empty when it did not.
	Blocked string `json:"blocked,omitempty"`
	// Aborting is true while the rotation is taken back.
	Aborting bool `json:"aborting,omitempty"`
	// Outcome is empty while the rotation is unfinished.
	Outcome Outcome `json:"outcome,omitempty"`
	// EndedAt is when it got its outcome.
	EndedAt *time.Time `json:"endedAt,omitempty"`
}

// StepState is what is known of one step.
type StepState struct {
	Name       string     `json:"name"`
	StartedAt  time.Time  `json:"startedAt"`
	ObservedAt *time.Time `json:"observedAt,omitempty"` // its effect was seen everywhere
	FinishedAt *time.Time `json:"finishedAt,omitempty"` // and the hold was over
}

// Check is how a rotation checks a third-party aggregated API.
type Check string

// The looks.
const (
	CheckByProbe Check = "probe" // what its endpoints make of the front proxy's certificate, and for answers
	// for answers; its endpoints did not say that they believe the certificate in use
	CheckByResponse Check = "answer"
	CheckNone       Check = "left out" // nothing; it did not answer
)

// setCheck records how a third-party API is checked.
func (s *State) setCheck(service certs.Service, look Check) {
	if s.Others == nil {
		s.Others = map[string]Check{}
	}
	s.Others[service.Namespace+"/"+service.Name] = look
}

// Outcome is how a rotation ended.
type Outcome string

// The outcomes.
const (
	Done    Outcome = "done"
	Aborted Outcome = "aborted"
)

// Unfinished is true between the first step and the outcome.
func (s *State) Unfinished() bool { return s != nil && s.Outcome == "" }

// ReadState reads the record of the last rotation of the same certificates: nil when there was none. One that cannot be
// read, or is of other certificates, is *certs.RefusedError.
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

// write replaces the record in one step. It is stored when write returns: a step must never be ahead of its record.
func (s *State) write(store certs.Store, set string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode state of rotation: %w", err)
	}
	return store.Write(set, certs.Files{StateFile: {Data: append(data, '\n'), Mode: 0o644}})
}

// EventType is what happened.
type EventType string

// The types of events, in the order in which a step has them.
const (
	EventNote     EventType = "note" // before the rotation begins: Message is worth to know, and no reason to refuse
	EventStarted  EventType = "started"
	EventResumed  EventType = "resumed" // begun by an earlier run
	EventWaiting  EventType = "waiting" // Message says for what
	EventObserved EventType = "observed"
	EventHolding  EventType = "holding"
	EventFinished EventType = "finished"
	EventUndone   EventType = "undone"
	EventBlocked  EventType = "blocked"
	EventEnded    EventType = "ended" // of the rotation: Message is its outcome
)

const eventKind = "RotationEvent"

// Event tells how a rotation goes on.
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
