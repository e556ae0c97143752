package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
)

// devclusterAuditLog asks hack/devcluster where the audit log of the cluster
// with this kubeconfig is. Clusters are named by the folder of their kubeconfig.
func devclusterAuditLog(ctx context.Context, kubeconfig string) (string, error) {
	const otherwise = "name the API server's audit log with -audit-log"
	path, err := filepath.Abs(kubeconfig)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", kubeconfig, err)
	}
	name := filepath.Base(filepath.Dir(path))
	out, err := exec.CommandContext(ctx, "go", "-C", "hack/devcluster", "run", ".", "status", "--name", name, "-o", "json").Output()
	if err != nil {
		return "", fmt.Errorf("%s seems to be of no devcluster, so %s: devcluster status: %w", path, otherwise, err)
	}
	var status struct {
		Kubeconfig string `json:"kubeconfig"`
		AuditLog   string `json:"auditLog"`
	}
	if err := json.Unmarshal(out, &status); err != nil {
		return "", fmt.Errorf("read the status of the devcluster %s: %w", name, err)
	}
	if status.Kubeconfig != path || status.AuditLog == "" {
		return "", fmt.Errorf("%s is of no devcluster, so %s", path, otherwise)
	}
	return status.AuditLog, nil
}
