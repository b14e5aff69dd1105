// flux-apply applies manifests as Flux's kustomize-controller does by default: with Flux's own library, and the options
// that the controller passes to it. The controller itself is no module that a proxy has.
//
//	flux-apply [--drift] <kubeconfig> < manifests.yaml
//
// It prints one line of JSON per object. With --drift it changes nothing, and prints what it would do.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/normalize"
	"github.com/fluxcd/pkg/ssa/utils"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	controller = "kustomize-controller"
	group      = "kustomize.toolkit.fluxcd.io"
	// How many objects the controller compares at once.
	concurrency = 4
)

func main() {
	args := os.Args[1:]
	drift := len(args) > 0 && args[0] == "--drift"
	if drift {
		args = args[1:]
	}
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "Usage: flux-apply [--drift] <kubeconfig> < manifests.yaml")
		os.Exit(2)
	}
	if err := run(args[0], drift, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "flux-apply:", err)
		os.Exit(1)
	}
}

func run(kubeconfig string, drift bool, in io.Reader, out io.Writer) error {
	// What the controller would build with kustomize.
	manifests, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("stdin cannot be read: %w", err)
	}
	objects, err := utils.ReadObjects(bytes.NewReader(manifests))
	if err != nil {
		return fmt.Errorf("stdin holds no Kubernetes objects: %w", err)
	}
	if len(objects) == 0 {
		return errors.New("stdin holds no Kubernetes objects")
	}
	if err := normalize.UnstructuredList(objects); err != nil {
		return fmt.Errorf("an object cannot be normalized: %w", err)
	}
	manager, err := newManager(kubeconfig)
	if err != nil {
		return err
	}

	ctx := ctrl.SetupSignalHandler()
	lines := json.NewEncoder(out)
	if drift {
		return diff(ctx, manager, objects, lines)
	}
	// What was applied before one failed is told, too.
	changes, err := manager.ApplyAllStaged(ctx, objects, applyOptions())
	if changes != nil {
		for i := range changes.Entries {
			if err := tell(lines, &changes.Entries[i]); err != nil {
				return err
			}
		}
	}
	return err
}

func newManager(kubeconfig string) (*ssa.ResourceManager, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("%s is not a kubeconfig: %w", kubeconfig, err)
	}
	config.QPS, config.Burst = 50, 300
	cluster, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("the API server of %s cannot be reached: %w", kubeconfig, err)
	}
	poller := polling.NewStatusPoller(cluster, cluster.RESTMapper(), polling.Options{})
	manager := ssa.NewResourceManager(cluster, poller, ssa.Owner{Field: controller, Group: group})
	manager.SetConcurrency(concurrency)
	return manager, nil
}

// Those of a Kustomization without spec.force, spec.ignore and the like.
func applyOptions() ssa.ApplyOptions {
	options := ssa.DefaultApplyOptions()
	options.ExclusionSelector = excluded()
	options.IfNotPresentSelector = onceOnly()
	options.ForceSelector = forced()
	options.Cleanup = ssa.ApplyCleanupOptions{
		Annotations: []string{
			corev1.LastAppliedConfigAnnotation,
			group + "/checksum",
			"fluxcd.io/sync-checksum",
		},
		Labels: []string{"fluxcd.io/sync-gc-mark"},
		// The library takes names as prefixes: `kubectl` means kubectl-edit and kubectl-client-side-apply as well.
		FieldManagers: []ssa.FieldManager{
			{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationApply},
			{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationUpdate},
			{Name: "before-first-apply", OperationType: metav1.ManagedFieldsOperationUpdate},
			{Name: controller, OperationType: metav1.ManagedFieldsOperationUpdate},
		},
		Exclusions: map[string]string{group + "/ssa": "Merge"},
	}
	return options
}

func excluded() map[string]string {
	return map[string]string{group + "/reconcile": "disabled", group + "/ssa": "Ignore"}
}

func onceOnly() map[string]string { return map[string]string{group + "/ssa": "IfNotPresent"} }

func forced() map[string]string { return map[string]string{group + "/force": "enabled"} }

func diff(ctx context.Context, manager *ssa.ResourceManager, objects []*unstructured.Unstructured, lines *json.Encoder) error {
	options := ssa.DefaultDiffOptions()
	options.Exclusions = excluded()
	options.IfNotPresentSelector = onceOnly()
	options.ForceSelector = forced()
	for _, object := range objects {
		change, _, _, err := manager.Diff(ctx, object, options)
		if err != nil {
			return err
		}
		if err := tell(lines, change); err != nil {
			return err
		}
	}
	return nil
}

func tell(lines *json.Encoder, change *ssa.ChangeSetEntry) error {
	return lines.Encode(struct {
		Object string `json:"object"`
		Action string `json:"action"`
	}{change.Subject, change.Action.String()})
}
