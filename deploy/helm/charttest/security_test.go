package charttest

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
)

// Every pod is one that the restricted Pod Security Standard lets in, and stricter than that where the chart promises it. Hooks,
// tests, jobs and containers that run first are no exception.
func TestPodsAreRestricted(t *testing.T) {
	containers := 0
	forEachCI(t, func(t *testing.T, _ map[string]any, r *Rendered) {
		if len(r.Pods()) == 0 {
			t.Fatal("there are no pods")
		}
		for _, p := range r.Pods() {
			for _, fault := range podFaults(p.Spec) {
				t.Errorf("%s: %s", p.Name(), fault)
			}
			for _, c := range p.Containers() {
				containers++
				for _, fault := range containerFaults(c) {
					t.Errorf("%s: container %s: %s", p.Name(), c.Name, fault)
				}
			}
		}
	})
	t.Logf("%d containers", containers)
}

// podFaults are what the restricted standard, or the chart's own promise, has against a pod as a whole.
func podFaults(spec core.PodSpec) []string {
	var faults []string
	fault := func(wrong bool, what string) {
		if wrong {
			faults = append(faults, what)
		}
	}
	fault(spec.HostNetwork, "hostNetwork")
	fault(spec.HostPID, "hostPID")
	fault(spec.HostIPC, "hostIPC")
	fault(spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken, "automountServiceAccountToken is not false")
	fault(spec.EnableServiceLinks == nil || *spec.EnableServiceLinks, "enableServiceLinks is not false: variables of services would stand beside ours")
	s := spec.SecurityContext
	if s == nil {
		return append(faults, "no securityContext")
	}
	fault(s.RunAsNonRoot == nil || !*s.RunAsNonRoot, "runAsNonRoot is not true")
	fault(s.RunAsUser == nil || *s.RunAsUser == 0, "runAsUser is not set, or root")
	fault(s.RunAsGroup != nil && *s.RunAsGroup == 0, "runAsGroup is root")
	fault(!confined(s.SeccompProfile), "seccompProfile is not RuntimeDefault")
	fault(len(s.Sysctls) > 0, "sysctls")
	fault(s.SELinuxOptions != nil && (s.SELinuxOptions.User != "" || s.SELinuxOptions.Role != ""), "seLinuxOptions")
	fault(s.AppArmorProfile != nil && s.AppArmorProfile.Type == core.AppArmorProfileTypeUnconfined, "appArmorProfile is Unconfined")
	fault(s.WindowsOptions != nil && s.WindowsOptions.HostProcess != nil && *s.WindowsOptions.HostProcess, "windowsOptions.hostProcess")
	for _, v := range spec.Volumes {
		allowed := v.ConfigMap != nil || v.CSI != nil || v.DownwardAPI != nil || v.EmptyDir != nil || v.Ephemeral != nil ||
			v.PersistentVolumeClaim != nil || v.Projected != nil || v.Secret != nil
		fault(!allowed, "volume "+v.Name+" is of a kind that is not allowed")
	}
	return faults
}

// containerFaults are likewise of one container.
func containerFaults(c core.Container) []string {
	var faults []string
	fault := func(wrong bool, what string) {
		if wrong {
			faults = append(faults, what)
		}
	}
	for _, p := range c.Ports {
		fault(p.HostPort != 0, "hostPort")
	}
	fault(c.Image == "" || strings.HasSuffix(c.Image, ":latest") || !strings.ContainsAny(c.Image, ":@"), "image "+c.Image+" names no version")
	s := c.SecurityContext
	if s == nil {
		return append(faults, "no securityContext")
	}
	fault(s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation, "allowPrivilegeEscalation is not false")
	fault(s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem, "readOnlyRootFilesystem is not true")
	fault(s.Privileged != nil && *s.Privileged, "privileged")
	fault(s.RunAsNonRoot != nil && !*s.RunAsNonRoot, "runAsNonRoot is false")
	fault(s.RunAsUser != nil && *s.RunAsUser == 0, "runAsUser is root")
	fault(s.SeccompProfile != nil && !confined(s.SeccompProfile), "seccompProfile is not RuntimeDefault")
	fault(s.ProcMount != nil && *s.ProcMount != core.DefaultProcMount, "procMount")
	fault(s.SELinuxOptions != nil && (s.SELinuxOptions.User != "" || s.SELinuxOptions.Role != ""), "seLinuxOptions")
	fault(s.AppArmorProfile != nil && s.AppArmorProfile.Type == core.AppArmorProfileTypeUnconfined, "appArmorProfile is Unconfined")
	if s.Capabilities == nil {
		return append(faults, "capabilities are not dropped")
	}
	fault(!slices.Contains(s.Capabilities.Drop, "ALL"), "capabilities are not dropped")
	fault(len(s.Capabilities.Add) > 0, "capabilities are added")
	return faults
}

func confined(p *core.SeccompProfile) bool {
	return p != nil && (p.Type == core.SeccompProfileTypeRuntimeDefault || p.Type == core.SeccompProfileTypeLocalhost)
}
