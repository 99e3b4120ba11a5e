{{/* Refuses values that contradict each other, all at once, each with its key and the remedy. Argument: the root. */}}
{{- define "redrive.check" -}}
{{- $v := .Values -}}
{{- $bad := list -}}
{{- $f := $v.forwarder -}}
{{- $r := $v.replayer -}}
{{- range $path, $remedy := include "redrive.ownKeys" . | fromYaml -}}
{{- $at := $v.config -}}
{{- range splitList "." $path -}}
{{- if kindIs "map" $at }}{{- $at = get $at . }}{{- else }}{{- $at = "" }}{{- end -}}
{{- end -}}
{{- if and (not (kindIs "invalid" $at)) (ne (toString $at) "") }}{{- $bad = append $bad (printf "config.%s: %s" $path $remedy) }}{{- end -}}
{{- end -}}

{{- /* What is installed, and with which file. */ -}}
{{- if not (or $f.enabled $r.enabled) -}}
{{- $bad = append $bad "forwarder.enabled, replayer.enabled: neither is true, so that nothing would be installed; set one of the two" -}}
{{- end -}}
{{- if $v.existingConfigMap.name -}}
{{- if $v.topics }}{{- $bad = append $bad "topics: not used beside existingConfigMap.name, whose file names the topics; remove one of the two" }}{{- end -}}
{{- if $v.config }}{{- $bad = append $bad "config: not used beside existingConfigMap.name; put the keys into its file, or remove existingConfigMap.name" }}{{- end -}}
{{- else -}}
{{- $brokers := concat $v.kafka.brokers (dig "kafka" "brokers" list $v.config) -}}
{{- if not $brokers }}{{- $bad = append $bad "kafka.brokers: no broker is set; for example --set 'kafka.brokers={kafka:9092}'" }}{{- end -}}
{{- if not (or $v.topics $v.config.topics) }}{{- $bad = append $bad "topics: no topic is set; for example --set 'topics[0].origin=orders'" }}{{- end -}}
{{- if and $v.topics $v.config.topics }}{{- $bad = append $bad "config.topics: topics is set as well, and would be lost; keep one of the two" }}{{- end -}}
{{- end -}}

{{- /* The brokers. */ -}}
{{- with $v.kafka.tls -}}
{{- if not .enabled -}}
{{- if or .caSecret.name .clientSecret.name .serverName .insecureSkipTlsVerify -}}
{{- $bad = append $bad "kafka.tls.enabled: is false while other keys of kafka.tls are set; set it to true, or remove them" -}}
{{- end -}}
{{- else if and .insecureSkipTlsVerify .caSecret.name -}}
{{- $bad = append $bad "kafka.tls.insecureSkipTlsVerify: contradicts kafka.tls.caSecret.name, as no authority is asked; keep one of the two" -}}
{{- end -}}
{{- end -}}
{{- with $v.kafka.sasl -}}
{{- $o := .oauth -}}
{{- $m := .awsMskIam -}}
{{- $oauthUsed := or $o.tokenEndpoint $o.clientId $o.clientSecret $o.scope $o.extensions $o.existingSecret.name $o.projectedToken.enabled -}}
{{- $mskUsed := or $m.region $m.userAgent $m.existingSecret.name -}}
{{- $userUsed := or .username .password .existingSecret.name -}}
{{- if not .enabled -}}
{{- if or $userUsed $oauthUsed $mskUsed -}}
{{- $bad = append $bad "kafka.sasl.enabled: is false while other keys of kafka.sasl are set; set it to true, or remove them" -}}
{{- end -}}
{{- else -}}
{{- if and $oauthUsed (ne .mechanism "OAUTHBEARER") }}{{- $bad = append $bad (printf "kafka.sasl.oauth: not used with kafka.sasl.mechanism %s; remove it, or choose OAUTHBEARER" .mechanism) }}{{- end -}}
{{- if and $mskUsed (ne .mechanism "AWS_MSK_IAM") }}{{- $bad = append $bad (printf "kafka.sasl.awsMskIam: not used with kafka.sasl.mechanism %s; remove it, or choose AWS_MSK_IAM" .mechanism) }}{{- end -}}
{{- if has .mechanism (list "OAUTHBEARER" "AWS_MSK_IAM") -}}
{{- if $userUsed }}{{- $bad = append $bad (printf "kafka.sasl: username, password and existingSecret are not used with kafka.sasl.mechanism %s; remove them" .mechanism) }}{{- end -}}
{{- else -}}
{{- if and .password .existingSecret.name -}}
{{- $bad = append $bad "kafka.sasl.password: kafka.sasl.existingSecret.name is set as well; keep one of the two, better the Secret" -}}
{{- else if not (or .password .existingSecret.name) -}}
{{- $bad = append $bad (printf "kafka.sasl.existingSecret.name: no Secret with the password of %s is set; name one, or for development set kafka.sasl.password" .mechanism) -}}
{{- else if and .password (not .username) -}}
{{- $bad = append $bad "kafka.sasl.username: no user is set for kafka.sasl.password" -}}
{{- else if not (or .username .existingSecret.usernameKey) -}}
{{- $bad = append $bad "kafka.sasl.username: no user is set, and no kafka.sasl.existingSecret.usernameKey either; set one of the two" -}}
{{- end -}}
{{- end -}}
{{- if eq .mechanism "OAUTHBEARER" -}}
{{- if and $o.clientSecret $o.existingSecret.name }}{{- $bad = append $bad "kafka.sasl.oauth.clientSecret: kafka.sasl.oauth.existingSecret.name is set as well; keep one of the two, better the Secret" }}{{- end -}}
{{- if and $o.projectedToken.enabled (or $o.tokenEndpoint $o.existingSecret.name $o.clientSecret) -}}
{{- $bad = append $bad "kafka.sasl.oauth.projectedToken.enabled: another source of tokens is set as well; keep one of projectedToken, tokenEndpoint and existingSecret" -}}
{{- else if $o.tokenEndpoint -}}
{{- if not $o.clientId }}{{- $bad = append $bad "kafka.sasl.oauth.clientId: kafka.sasl.oauth.tokenEndpoint needs it" }}{{- end -}}
{{- if not (or $o.clientSecret $o.existingSecret.name) }}{{- $bad = append $bad "kafka.sasl.oauth.existingSecret.name: kafka.sasl.oauth.tokenEndpoint needs a Secret with the secret of clientId" }}{{- end -}}
{{- else -}}
{{- if not (or $o.projectedToken.enabled $o.existingSecret.name) }}{{- $bad = append $bad "kafka.sasl.oauth: OAUTHBEARER needs one of tokenEndpoint, existingSecret.name and projectedToken.enabled" }}{{- end -}}
{{- range $key := list "clientId" "clientSecret" "scope" -}}
{{- if get $o $key }}{{- $bad = append $bad (printf "kafka.sasl.oauth.%s: not used without kafka.sasl.oauth.tokenEndpoint; set that, or remove it" $key) }}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $key, $block := dict "forwarder.credentials" $f.credentials "replayer.credentials" $r.credentials "topicManagement.job.credentials" $v.topicManagement.job.credentials -}}
{{- if and $block.saslSecretName (not (or $v.kafka.sasl.existingSecret.name $v.kafka.sasl.oauth.existingSecret.name $v.kafka.sasl.awsMskIam.existingSecret.name)) -}}
{{- $bad = append $bad (printf "%s.saslSecretName: takes the place of the existingSecret of kafka.sasl, and none is set there; set that first" $key) -}}
{{- end -}}
{{- if and $block.tlsSecretName (not $v.kafka.tls.clientSecret.name) -}}
{{- $bad = append $bad (printf "%s.tlsSecretName: takes the place of kafka.tls.clientSecret.name, and none is set there; set that first" $key) -}}
{{- end -}}
{{- end -}}

{{- /* What both workloads have. */ -}}
{{- $config := include "redrive.config" . | fromYaml -}}
{{- range $name, $w := dict "forwarder" $f "replayer" $r -}}
{{- if $w.enabled -}}
{{- $shutdown := dig $name "shutdownTimeout" "" $config -}}
{{- $ms := include "redrive.millis" $shutdown -}}
{{- $sleep := dig "preStop" "sleep" "seconds" 0 $w.lifecycle | int64 -}}
{{- if and (ne (toString $shutdown) "") (eq $ms "") -}}
{{- $bad = append $bad (printf "%s.shutdownTimeout: %q is not a duration such as 20s" $name (toString $shutdown)) -}}
{{- else if and $ms (le (mul (int64 $w.terminationGracePeriodSeconds) 1000) (add (int64 $ms) (mul $sleep 1000))) -}}
{{- $bad = append $bad (printf "%s.terminationGracePeriodSeconds: %d is not more than %s.shutdownTimeout, %s%s: Kubernetes would kill what is still being finished; raise it" $name (int64 $w.terminationGracePeriodSeconds) $name $shutdown (ternary (printf ", and %d seconds of preStop" $sleep) "" (gt $sleep 0))) -}}
{{- end -}}
{{- $session := dig $name "sessionTimeout" "45s" $config -}}
{{- $sessionMs := include "redrive.millis" $session -}}
{{- if eq $sessionMs "" -}}
{{- $bad = append $bad (printf "%s.sessionTimeout: %q is not a duration such as 45s" $name (toString $session)) -}}
{{- else if and $ms (ge (int64 $ms) (int64 $sessionMs)) -}}
{{- $bad = append $bad (printf "%s.shutdownTimeout: %s is not shorter than %s.sessionTimeout, %s" $name $shutdown $name $session) -}}
{{- end -}}
{{- if and (ne (toString $w.pdb.minAvailable) "") (ne (toString $w.pdb.maxUnavailable) "") (ne (toString $w.pdb.maxUnavailable) "1") -}}
{{- $bad = append $bad (printf "%s.pdb.minAvailable: %s.pdb.maxUnavailable is set as well; keep one of the two" $name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $f.enabled $r.enabled -}}
{{- if eq (dig "forwarder" "group" "redrive-forwarder" $config) (dig "replayer" "group" "redrive-dlt-replayer" $config) -}}
{{- $bad = append $bad "replayer.group: is that of the forwarder as well; give each a group of its own" -}}
{{- end -}}
{{- end -}}

{{- /* Scaling. */ -}}
{{- with $f.autoscaling -}}
{{- if ne .type "none" -}}
{{- if gt (int64 .minReplicas) (int64 .maxReplicas) }}{{- $bad = append $bad (printf "forwarder.autoscaling.maxReplicas: %d is below forwarder.autoscaling.minReplicas, %d" (int64 .maxReplicas) (int64 .minReplicas)) }}{{- end -}}
{{- if and (eq .type "keda") (not .keda.serverAddress) }}{{- $bad = append $bad "forwarder.autoscaling.keda.serverAddress: the URL of Prometheus is not set; for example http://prometheus.monitoring:9090" }}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The ledger. */ -}}
{{- if $r.enabled -}}
{{- $l := $v.ledger -}}
{{- if include "redrive.postgres" . -}}
{{- if $l.existingSecret.passwordKey -}}
{{- if not $l.existingSecret.name }}{{- $bad = append $bad "ledger.existingSecret.name: ledger.existingSecret.passwordKey needs a Secret" }}{{- end -}}
{{- if not $l.url }}{{- $bad = append $bad "ledger.url: ledger.existingSecret.passwordKey is a password only; set the URL without it, as postgres://user@host:5432/name" }}{{- end -}}
{{- if regexMatch "^[a-z]+://[^/@]*:[^/@]*@" $l.url }}{{- $bad = append $bad "ledger.url: holds a password, and ledger.existingSecret.passwordKey names one as well; write it as postgres://user@host:5432/name" }}{{- end -}}
{{- if $l.migrations.existingSecret.name }}{{- $bad = append $bad "ledger.migrations.existingSecret.name: not with ledger.existingSecret.passwordKey; keep the whole URL of the program in a Secret as well, by ledger.existingSecret.urlKey" }}{{- end -}}
{{- else if and $l.existingSecret.name $l.url -}}
{{- $bad = append $bad "ledger.url: ledger.existingSecret.name is set as well; keep one of the two, better the Secret, or set ledger.existingSecret.passwordKey" -}}
{{- else if not (or $l.existingSecret.name $l.url) -}}
{{- $bad = append $bad "ledger.existingSecret.name: ledger.type is postgres and no Secret with its URL is set; name one, or for development set ledger.url" -}}
{{- end -}}
{{- if and $l.url (not (regexMatch "^postgres(ql)?://" $l.url)) }}{{- $bad = append $bad "ledger.url: is not a URL of Postgres; write it as postgres://user@host:5432/name" }}{{- end -}}
{{- if and $l.migrations.existingSecret.name (ne $l.migrations.mode "job") -}}
{{- $bad = append $bad (printf "ledger.migrations.existingSecret.name: only a Job has rights of its own, and ledger.migrations.mode is %s; set that to job" $l.migrations.mode) -}}
{{- end -}}
{{- else -}}
{{- if gt (int64 $r.replicas) 1 }}{{- $bad = append $bad (printf "replayer.replicas: %d processes can not share the file of ledger.type sqlite; set it to 1, or ledger.type to postgres" (int64 $r.replicas)) }}{{- end -}}
{{- if or $l.url $l.existingSecret.name }}{{- $bad = append $bad "ledger.type: is sqlite while ledger.url or ledger.existingSecret.name is set; set it to postgres, or remove them" }}{{- end -}}
{{- end -}}

{{- /* The API. */ -}}
{{- if and $r.auth.existingSecret.name $r.auth.tokens }}{{- $bad = append $bad "replayer.auth.tokens: replayer.auth.existingSecret.name is set as well; keep one of the two" }}{{- end -}}
{{- range $i, $token := $r.auth.tokens -}}
{{- /* Not shown: it may be the token itself. */ -}}
{{- if not (regexMatch "^[0-9a-fA-F]{64}$" (toString $token.sha256)) }}{{- $bad = append $bad (printf "replayer.auth.tokens[%d].sha256: is not the SHA-256 of a token, 64 hexadecimal digits; dlt-replayer token prints the token and this sum of it" $i) }}{{- end -}}
{{- end -}}
{{- $open := "the API would be open to everybody, as no tokens are set; make one with dlt-replayer token and set replayer.auth.existingSecret.name" -}}
{{- if and $r.ingress.enabled (not (include "redrive.authenticated" .)) }}{{- $bad = append $bad (printf "replayer.ingress.enabled: %s" $open) }}{{- end -}}
{{- if and $r.httpRoute.enabled (not (include "redrive.authenticated" .)) }}{{- $bad = append $bad (printf "replayer.httpRoute.enabled: %s" $open) }}{{- end -}}
{{- if and (ne $r.service.type "ClusterIP") (not (include "redrive.authenticated" .)) }}{{- $bad = append $bad (printf "replayer.service.type: %s" $open) }}{{- end -}}
{{- if and $r.ingress.enabled (not $r.ingress.hosts) }}{{- $bad = append $bad "replayer.ingress.hosts: no host is set; for example [{host: redrive.example.com}]" }}{{- end -}}
{{- if and $r.httpRoute.enabled (not $r.httpRoute.parentRefs) }}{{- $bad = append $bad "replayer.httpRoute.parentRefs: no gateway is set; for example [{name: gateway, namespace: ingress}]" }}{{- end -}}
{{- else if or $r.ingress.enabled $r.httpRoute.enabled -}}
{{- $bad = append $bad "replayer.enabled: is false while replayer.ingress or replayer.httpRoute is enabled; there is no API to expose" -}}
{{- end -}}

{{- /* The topics. */ -}}
{{- with $v.topicManagement -}}
{{- if eq .mode "strimzi" -}}
{{- if $v.existingConfigMap.name }}{{- $bad = append $bad "topicManagement.mode: strimzi needs topics in the values, and existingConfigMap.name is set; set topics instead, or choose job" }}{{- end -}}
{{- if not .strimzi.cluster }}{{- $bad = append $bad "topicManagement.strimzi.cluster: the name of the Kafka resource is not set" }}{{- end -}}
{{- if and .strimzi.replicas (gt (int64 .strimzi.minInsyncReplicas) (int64 .strimzi.replicas)) -}}
{{- $bad = append $bad (printf "topicManagement.strimzi.minInsyncReplicas: %d is above topicManagement.strimzi.replicas, %d, so that nothing could be written" (int64 .strimzi.minInsyncReplicas) (int64 .strimzi.replicas)) -}}
{{- end -}}
{{- range $topic := default list $config.topics -}}
{{- if not (or $v.topicManagement.strimzi.partitions (get $v.topicManagement.strimzi.partitionsByOrigin $topic.origin)) -}}
{{- $bad = append $bad (printf "topicManagement.strimzi.partitions: not set, nor topicManagement.strimzi.partitionsByOrigin.%s; set as many as the topic %s has" $topic.origin $topic.origin) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* What watches. */ -}}
{{- if and $v.metrics.serviceMonitor.enabled $v.metrics.podMonitor.enabled }}{{- $bad = append $bad "metrics.podMonitor.enabled: metrics.serviceMonitor.enabled is true as well, and each pod would be scraped twice; keep one of the two" }}{{- end -}}

{{- with $bad }}{{- fail (printf "\n\n%s\n" (join "\n" .)) }}{{- end -}}
{{- end }}

{{/* The keys of topics.yaml that config must not hold, and what to do instead. Gives YAML. */}}
{{- define "redrive.ownKeys" -}}
kafka.sasl.password: would stand in a ConfigMap; use kafka.sasl.existingSecret
kafka.sasl.oauth.token: would stand in a ConfigMap; use kafka.sasl.oauth.existingSecret
kafka.sasl.oauth.clientSecret: would stand in a ConfigMap; use kafka.sasl.oauth.existingSecret
kafka.sasl.awsMskIam.secretKey: would stand in a ConfigMap; use kafka.sasl.awsMskIam.existingSecret
kafka.sasl.awsMskIam.sessionToken: would stand in a ConfigMap; use kafka.sasl.awsMskIam.existingSecret
forwarder.admin.address: the ports of the pod are fixed; remove it
forwarder.instanceId: would be the same in all pods, which fence each other; use forwarder.kind StatefulSet
replayer.admin.address: the ports of the pod are fixed; remove it
replayer.instanceId: would be the same in all pods, which fence each other; remove it
replayer.api.address: the ports of the pod are fixed; set replayer.auth for an API that is reached from elsewhere
replayer.api.tokens: use replayer.auth.tokens
replayer.api.tokensFilepath: use replayer.auth.existingSecret
ledger.url: would stand in a ConfigMap; use ledger.existingSecret
ledger.urlFilepath: use ledger.existingSecret
ledger.dataDir: the place of the volume is fixed; remove it
ledger.migrate: use ledger.migrations.mode
{{- end }}
