// Command provisioner makes PersistentVolumes out of folders, and lets them grow.
// All nodes of a devcluster share the machine's file system, so it runs beside
// them and makes the folder of a volume below the folder of the node that the
// Pod goes to.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// name is the provisioner in the StorageClass.
const name = "devcluster/folder"

// folders makes and removes the folders of volumes below root.
type folders struct{ root string }

// Provision makes a folder that any user may write to. The scheduler has picked
// the node (WaitForFirstConsumer).
func (f folders) Provision(_ context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	if o.SelectedNodeName == "" {
		return nil, controller.ProvisioningFinished, fmt.Errorf("no node is selected: the StorageClass must wait for the first consumer")
	}
	path := filepath.Join(f.root, o.SelectedNodeName, "volumes", o.PVName)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("make folder of volume %s: %w", o.PVName, err)
	}
	if err := os.Chmod(path, 0o777); err != nil { // the umask cut the mode
		return nil, controller.ProvisioningFinished, fmt.Errorf("open folder of volume %s: %w", o.PVName, err)
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *o.StorageClass.ReclaimPolicy,
			AccessModes:                   o.PVC.Spec.AccessModes,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: o.PVC.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{o.SelectedNodeName},
				}},
			}}}},
		},
	}, controller.ProvisioningFinished, nil
}

// Delete removes the folder with what is in it.
func (f folders) Delete(_ context.Context, pv *corev1.PersistentVolume) error {
	if pv.Spec.Local == nil || filepath.Base(pv.Spec.Local.Path) != pv.Name {
		return fmt.Errorf("volume %s was not made here", pv.Name)
	}
	return os.RemoveAll(pv.Spec.Local.Path)
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of the kubeconfig")
	root := flag.String("root", "", "folder that holds a folder for each node")
	flag.Parse()
	if err := run(*kubeconfig, *root); err != nil {
		fmt.Fprintln(os.Stderr, "provisioner:", err)
		os.Exit(1)
	}
}

func run(kubeconfig, root string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1 // volumes are made while Pods wait for them
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		controller.NewProvisionController(ctx, client, name, folders{root: root}, controller.LeaderElection(false)).Run(ctx)
	}()
	return newResizer(client).run(ctx)
}
