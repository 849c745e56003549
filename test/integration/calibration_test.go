// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample/apis/client/clientset/versioned"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// TestCalibration checks that an action requests work that takes longer than a request, that the
// server that holds the Lease does the work, and that the status and the log report it. A server
// that finds unfinished work repeats it.
func TestCalibration(t *testing.T) {
	e := envtest.New(t, envtest.Options{ServerArgs: []string{"--calibration-step=300ms"}})
	config, err := e.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	widgets := client.WorkshopV1().Widgets("default")
	if _, err := widgets.Create(t.Context(), &v1.Widget{ObjectMeta: metav1.ObjectMeta{Name: "w"},
		Spec: v1.WidgetSpec{Model: "pendulum"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	calibrate := func(reason string, options metav1.CreateOptions) error {
		_, err := widgets.Calibrate(t.Context(), "w", &v1.CalibrateWidget{Reason: reason}, options)
		return err
	}
	if err := calibrate("", metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("without a reason: got %v, want it invalid", err)
	}
	if err := calibrate("dry", metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Error(err)
	}
	if err := calibrate("it drifts", metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := calibrate("again", metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("while it is calibrated: got %v, want a conflict", err)
	}
	lines := followLog(t, config)
	if len(lines) == 0 || lines[0] != "Requested: it drifts" && !strings.HasPrefix(lines[0], "Running: ") ||
		lines[len(lines)-1] != "Completed: step 10 of 10" {
		t.Errorf("the log is %q, want it from the request to the end", lines)
	}
	if _, stderr, err := (envtest.Kubectl{}).Run(t.Context(), e, "wait", "--for=condition=Calibrated", "widgets/w",
		"--timeout=30s"); err != nil {
		t.Errorf("kubectl wait: %v: %s", err, stderr)
	}

	if err := calibrate("after a crash", metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := e.CrashServer(t.Context(), e.Servers[0]); err != nil {
		t.Fatal(err)
	}
	e.Eventually(t, "the calibration after a crash", envtest.WaitTimeout, func(ctx context.Context) error {
		w, err := widgets.Get(ctx, "w", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c := w.Status.Conditions; len(c) != 1 || c[0].Reason != "Completed" {
			return fmt.Errorf("the conditions are %v", c)
		}
		return nil
	})
	reader := e.User(t, "no-calibration", rbacv1.PolicyRule{APIGroups: []string{v1.SchemeGroupVersion.Group},
		Resources: []string{"widgets", "widgets/status"}, Verbs: []string{"*"}})
	if client, err = versioned.NewForConfig(reader); err != nil {
		t.Fatal(err)
	}
	if _, err := client.WorkshopV1().Widgets("default").Calibrate(t.Context(), "w", &v1.CalibrateWidget{Reason: "r"},
		metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("by one who may write widgets: got %v, want it forbidden", err)
	}
}

// followLog follows the log of the widget w until its end, and returns the lines.
func followLog(t *testing.T, config *rest.Config) []string {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		config.Host+"/apis/workshop.example.com/v1/namespaces/default/widgets/w/log?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the log: %s", resp.Status)
	}
	var lines []string
	scanner := bufio.NewScanner(resp.Body)
	for scanner.Scan() {
		lines = append(lines, scanner.Text())
	}
	if err := scanner.Err(); err != nil {
		t.Errorf("the log breaks off: %v", err)
	}
	return lines
}
