#!/usr/bin/env bash
# Prints what to look at in an audit log that was written by docs/audit-policy.yaml. Usage: docs/audit-queries.sh audit.log
set -euo pipefail
log=$1
# Refused to the operator's accounts, but for the reconciler's dry runs.
jq -c 'select(.responseStatus.code == 403 and (.requestURI | contains("dryRun=All") | not))
  | select(.user.username | test("^system:serviceaccount:[^:]+:[^:]*brupop-"))
  | [.requestReceivedTimestamp, .user.username, .user.extra["authentication.kubernetes.io/node-name"], .responseStatus.message]' "$log"
# Impersonation.
jq -c 'select(.impersonatedUser.username // "" | test(":[^:]*brupop-")) | [.user.username, .verb, .objectRef.name]' "$log"
# Tokens that no kubelet requested, pods that no controller made, commands in a pod.
jq -c 'select(.objectRef.namespace == "brupop-bottlerocket-aws")
  | select((.objectRef.subresource // "" | IN("token", "exec", "attach", "portforward", "ephemeralcontainers"))
      or (.objectRef.resource == "pods" and .verb == "create" and (.objectRef.subresource // "") == ""))
  | select(.user.username | test("^system:node:|^system:kube-|^system:serviceaccount:kube-system:") | not)
  | [.requestReceivedTimestamp, .user.username, .objectRef.resource, .objectRef.subresource, .objectRef.name]' "$log"
# Changed policies, roles and webhook configurations, but by the webhook itself.
jq -c 'select(.objectRef.apiGroup // "" | IN("admissionregistration.k8s.io", "rbac.authorization.k8s.io"))
  | select((.objectRef.name // "" | contains("brupop")) and (.verb | IN("create", "update", "patch", "delete", "deletecollection")))
  | select(.user.username | test(":[^:]*brupop-webhook[^:]*$") | not)
  | [.requestReceivedTimestamp, .user.username, .verb, .objectRef.name]' "$log"
