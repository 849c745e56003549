// SPDX-License-Identifier: Apache-2.0

package rotation

import "time"

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

// StepInfo describes a step before it is done.
type StepInfo struct {
	Name  string   `json:"name"`
	Kind  StepKind `json:"kind"`
	About string   `json:"about"`
	Holds bool     `json:"holds"`
}

// Plan lists the steps of a rotation without looking at anything.
func Plan(rotation string) ([]StepInfo, error) {
	p, err := newProcedure(Options{Rotation: rotation})
	if err != nil {
		return nil, err
	}
	var out []StepInfo
	for _, s := range p.steps {
		out = append(out, StepInfo{s.name, s.kind, s.about, s.hold})
	}
	return out, nil
}
