package config

// Config is the configuration of the forwarder and the dlt-replayer. After Load every default is filled, every name is expanded, every rule is checked.
// It holds plain values and is never written after Load, so it may be shared freely.
type Config struct {
	// Kafka says how every client of the process reaches the brokers.
	Kafka Kafka `json:"kafka"`
	// Forwarder sets up the process that moves retry records.
	Forwarder Forwarder `json:"forwarder"`
	// Ledger is where the dlt-replayer keeps what it knows of the dead letters.
	Ledger Ledger `json:"ledger"`
	// Replayer sets up the process that indexes and replays dead letters.
	Replayer Replayer `json:"replayer"`
	// Logging sets up what the process writes to standard error.
	Logging Logging `json:"logging"`
	// Tracing sets up what the process tells a tracing system.
	Tracing Tracing `json:"tracing"`
	// Topics lists the origins whose failures are retried, one entry for each origin, or for each origin and group.
	Topics []Topic `json:"topics" jsonschema:"required,minItems=1"`
}

// Kafka holds what every client needs to reach the brokers.
type Kafka struct {
	// Brokers are the first brokers to ask, each as host:port; the others are learned from them. In the environment they are
	// separated by commas.
	Brokers []string `json:"brokers" jsonschema:"minItems=1"`
	// ClientID is the name the brokers log and count the clients by. Where it is the default the dlt-replayer has redrive-dlt-replayer
	// instead.
	ClientID string `json:"clientId"`
	// RackID is the rack or zone this process runs in, as broker.rack of the brokers says it. Brokers that have a replica selector then
	// let it read from a replica of the same rack (Kafka: client.rack). Empty means that the leaders are read.
	RackID string `json:"rackId"`
	// TLS encrypts the connections.
	TLS TLS `json:"tls"`
	// SASL authenticates the connections.
	SASL SASL `json:"sasl"`
}

// TLS encrypts the connections to the brokers.
type TLS struct {
	// Enabled turns TLS on.
	Enabled bool `json:"enabled"`
	// CAFilepath is a PEM file with the authorities that sign the brokers' certificates. Empty means those of the system.
	CAFilepath string `json:"caFilepath"`
	// CertFilepath is a PEM file with the client certificate, for brokers that ask for one. It needs keyFilepath.
	CertFilepath string `json:"certFilepath"`
	// KeyFilepath is a PEM file with the private key of certFilepath.
	KeyFilepath string `json:"keyFilepath"`
	// InsecureSkipTLSVerify accepts any certificate. Who stands between can then read and change everything.
	InsecureSkipTLSVerify bool `json:"insecureSkipTlsVerify"`
	// ServerName is the name expected in the brokers' certificates. Empty means the host that was dialled.
	ServerName string `json:"serverName"`
}

// SASL authenticates the connections to the brokers.
type SASL struct {
	// Enabled turns authentication on.
	Enabled bool `json:"enabled"`
	// Mechanism is how the forwarder shows the brokers who it is: with username and password in the first three, with the tokens of oauth
	// in OAUTHBEARER, with the credentials of awsMskIam in AWS_MSK_IAM. The keys of the others are errors.
	Mechanism string `json:"mechanism" jsonschema:"enum=PLAIN,enum=SCRAM-SHA-256,enum=SCRAM-SHA-512,enum=OAUTHBEARER,enum=AWS_MSK_IAM"`
	// Username is the user to authenticate as.
	Username string `json:"username"`
	// Password is the user's password. Better kept in passwordFilepath or in the environment; the two exclude each other.
	Password Secret `json:"password"`
	// PasswordFilepath is a file that holds the password; it is read again for each new connection, so that the password may
	// be rotated without a restart.
	PasswordFilepath string `json:"passwordFilepath"`
	// OAuth holds where the tokens of OAUTHBEARER come from.
	OAuth OAuth `json:"oauth"`
	// AWSMSKIAM holds the credentials of AWS_MSK_IAM.
	AWSMSKIAM AWSMSKIAM `json:"awsMskIam"`
}

// OAuth holds where the tokens of the mechanism OAUTHBEARER come from: exactly one of token, tokenFilepath and tokenEndpoint.
type OAuth struct {
	// Token is the token itself. It is not renewed: better for a trial than for a process that stays.
	Token Secret `json:"token"`
	// TokenFilepath is a file that holds the token; it is read again for each new connection, so that whatever writes it may renew it.
	TokenFilepath string `json:"tokenFilepath"`
	// TokenEndpoint is the URL that gives a token for clientId and its secret (OAuth 2.0, client credentials grant).
	TokenEndpoint string `json:"tokenEndpoint"`
	// ClientID is the client that the endpoint knows.
	ClientID string `json:"clientId"`
	// ClientSecret is the secret of clientId. Better kept in clientSecretFilepath or in the environment; the two exclude each other.
	ClientSecret Secret `json:"clientSecret"`
	// ClientSecretFilepath is a file that holds the secret; it is read again for each token.
	ClientSecretFilepath string `json:"clientSecretFilepath"`
	// Scope is what the token is asked for; several scopes are separated by spaces. Empty means what the endpoint gives by itself.
	Scope string `json:"scope"`
	// Extensions are sent to the brokers with every token (SASL extensions), for those that ask for more than a token. In the environment
	// they are written key=value and separated by commas.
	Extensions []Extension `json:"extensions"`
}

// Extension is one value that is sent to the brokers with a token.
type Extension struct {
	// Key is its name: letters only, and not auth.
	Key string `json:"key" jsonschema:"required"`
	// Value is what the brokers expect under that name.
	Value string `json:"value" jsonschema:"required"`
}

// AWSMSKIAM holds the credentials of the mechanism AWS_MSK_IAM. If none is set they come from where AWS's own tools look for them: the
// environment, the shared files, the role of the container or of the machine.
type AWSMSKIAM struct {
	// AccessKey is the id of an access key. It needs secretKey.
	AccessKey string `json:"accessKey"`
	// SecretKey is the secret of accessKey.
	SecretKey Secret `json:"secretKey"`
	// SessionToken belongs to an accessKey that is temporary.
	SessionToken Secret `json:"sessionToken"`
	// Region is the region of the brokers. Empty means the one in the names of the brokers, or that of the AWS settings.
	Region string `json:"region"`
	// UserAgent is what the brokers log as the client. Empty means a name of this program.
	UserAgent string `json:"userAgent"`
}

// Forwarder sets up the process that moves retry records.
type Forwarder struct {
	// Group is the consumer group of the forwarder itself. All its replicas share it; it must not be the group of an application.
	Group string `json:"group"`
	// InstanceID makes the member a static one (Kafka: group.instance.id), for stable names such as those of a StatefulSet.
	// Two processes with the same one fence each other. Empty means a dynamic member.
	InstanceID string `json:"instanceId"`
	// GroupProtocol is how the members share the partitions. With classic they agree among themselves, on every Kafka. With consumer the
	// brokers decide (KIP-848), from Kafka 4.0 on, better 4.3. All replicas of a group use the same one.
	GroupProtocol string `json:"groupProtocol" jsonschema:"enum=classic,enum=consumer"`
	// SessionTimeout is how long the brokers wait for a heartbeat before the partitions of a silent member move (Kafka:
	// session.timeout.ms). The brokers' own limits, by default 6s to 30m, apply as well. With groupProtocol consumer the session is set at
	// the brokers (Kafka: group.consumer.session.timeout.ms, by default 45s), and this is what the forwarder takes it for: never more.
	SessionTimeout Duration `json:"sessionTimeout"`
	// ShutdownTimeout bounds the drain after SIGTERM. Keep it below the grace period of whatever stops the process; it must be
	// shorter than sessionTimeout.
	ShutdownTimeout Duration `json:"shutdownTimeout"`
	// CommitInterval is the time between commits. What was forwarded since the last one is forwarded again after a crash.
	CommitInterval Duration `json:"commitInterval"`
	// MaxUncommitted bounds the records of one partition that are forwarded or in flight and not yet covered by a commit: the
	// most a crash can repeat.
	MaxUncommitted int `json:"maxUncommitted" jsonschema:"minimum=1"`
	// MaxHeldBytes bounds the waiting records held in memory, over all partitions. Above it partitions are paused.
	MaxHeldBytes Bytes `json:"maxHeldBytes"`
	// MaxHeldBytesPerPartition bounds the waiting records held in memory for one partition; at most maxHeldBytes.
	MaxHeldBytesPerPartition Bytes `json:"maxHeldBytesPerPartition"`
	// ReloadInterval is the time between two looks at the file, whose changes are taken over while the process runs. With 0s it is
	// read again on SIGHUP only.
	ReloadInterval Duration `json:"reloadInterval"`
	// Admin is the HTTP endpoint for probes and metrics.
	Admin Admin `json:"admin"`
}

// Admin sets up the HTTP endpoint for probes and metrics.
type Admin struct {
	// Address is where the endpoint listens, as host:port. An empty host means all interfaces, port 0 a free one.
	Address string `json:"address"`
	// Pprof adds Go's profiles below /debug/pprof/. They show what the process does, and cost time while they are taken.
	Pprof bool `json:"pprof"`
}

// Ledger is where the dlt-replayer keeps what it knows of the dead letters.
type Ledger struct {
	// URL is the database: postgres://user@host:5432/name, or sqlite:///absolute/path and sqlite://relative/path for a file that one
	// process has for itself. Empty means the file ledger.db in dataDir. Better kept in urlFilepath or in the environment where it
	// holds a password.
	URL Secret `json:"url"`
	// URLFilepath is a file that holds the URL. It excludes url.
	URLFilepath string `json:"urlFilepath"`
	// DataDir is the directory of ledger.db where no URL is set. It is made if it is not there.
	DataDir string `json:"dataDir"`
	// KeepPayload copies the bytes of each dead letter into the ledger, so that it can be replayed when the retention of its topic is over.
	// Otherwise they stay in Kafka only.
	KeepPayload bool `json:"keepPayload"`
	// MaxConnections bounds the connections of one process to Postgres.
	MaxConnections int `json:"maxConnections" jsonschema:"minimum=2"`
	// Migrate lets dlt-replayer serve bring the tables of Postgres to its version before it begins. With false it waits for
	// dlt-replayer migrate. A file of SQLite is always migrated.
	Migrate bool `json:"migrate"`
}

// Replayer sets up the process that indexes and replays dead letters.
type Replayer struct {
	// Group is the consumer group of the dlt-replayer itself. All its replicas share it; it must not be that of the forwarder or of an
	// application.
	Group string `json:"group"`
	// InstanceID makes the member a static one (Kafka: group.instance.id), for stable names such as those of a StatefulSet.
	// Two processes with the same one fence each other. Empty means a dynamic member.
	InstanceID string `json:"instanceId"`
	// SessionTimeout is how long the brokers wait for a heartbeat before the partitions of a silent member move (Kafka:
	// session.timeout.ms).
	SessionTimeout Duration `json:"sessionTimeout"`
	// ShutdownTimeout bounds the stop after SIGTERM: that what was sent is acknowledged and marked. Keep it below the grace period of
	// whatever stops the process; it must be shorter than sessionTimeout.
	ShutdownTimeout Duration `json:"shutdownTimeout"`
	// Lease is how long a replica may work on a replay without a sign of life to the ledger. Then another takes over.
	Lease Duration `json:"lease"`
	// InFlight bounds the letters that a replay has sent and that are not acknowledged: the most that a replica which has lost its
	// lease can still send.
	InFlight int `json:"inFlight" jsonschema:"minimum=1"`
	// Batch is how many letters a replay claims at once.
	Batch int `json:"batch" jsonschema:"minimum=1"`
	// RateLimit is the most letters a second that one replica sends, over all its replays. With 0 there is no limit.
	RateLimit float64 `json:"rateLimit" jsonschema:"minimum=0"`
	// DefaultRate is the rate, in letters a second, of a replay that does not say its own.
	DefaultRate float64 `json:"defaultRate" jsonschema:"minimum=0"`
	// BulkLimit is how many letters may be replayed, discarded or purged at once without saying how many are expected.
	BulkLimit int `json:"bulkLimit" jsonschema:"minimum=1"`
	// LabelHeader is a header of the records whose value letters can be grouped and selected by, such as that of a schema's version or of
	// the producer. Empty means none.
	LabelHeader string `json:"labelHeader"`
	// ReloadInterval is the time between two looks at the files, of which the log level and the tokens are taken over while the process
	// runs. With 0s they are read again on SIGHUP only.
	ReloadInterval Duration `json:"reloadInterval"`
	// Expiry is the watch over letters that retention is about to take.
	Expiry Expiry `json:"expiry"`
	// Admin is the HTTP endpoint for probes and metrics.
	Admin Admin `json:"admin"`
	// API is the HTTP endpoint for operators and programs.
	API API `json:"api"`
}

// Expiry sets up the watch over letters that retention is about to take.
type Expiry struct {
	// Within is how long before retention may take a letter it counts as expiring: for the metric, the issue letters-expiring, and where
	// a command or request does not say its own.
	Within Duration `json:"within"`
}

// API sets up the HTTP endpoint for operators and programs.
type API struct {
	// Address is where the endpoint listens, as host:port. Beyond this machine it listens only where tokens are set.
	Address string `json:"address"`
	// Tokens are those that are accepted. With none here and none in tokensFilepath everybody on this machine may do everything. In the
	// environment they are written name:role:sha256 and separated by commas, with :topic|topic at the end where there are some.
	Tokens []Token `json:"tokens"`
	// TokensFilepath is a YAML file with a list of further tokens; it is read again when it has changed.
	TokensFilepath string `json:"tokensFilepath"`
	// MaxBody bounds the body of a request.
	MaxBody Bytes `json:"maxBody"`
}

// Token is one token that the API accepts. dlt-replayer token makes one.
type Token struct {
	// Name is who has it, as the audit trail says it.
	Name string `json:"name" jsonschema:"required"`
	// Role is what it allows: a viewer reads, an operator replays and discards as well, an admin does everything.
	Role string `json:"role" jsonschema:"required,enum=viewer,enum=operator,enum=admin"`
	// SHA256 is the SHA-256 of the token, in hexadecimal. The token itself stands nowhere.
	SHA256 string `json:"sha256" jsonschema:"required"`
	// Topics are the topics of dead letters that it is for. With none it is for all.
	Topics []string `json:"topics"`
}

// Logging sets up what the process writes to standard error.
type Logging struct {
	// Level is the lowest level that is written.
	Level string `json:"level" jsonschema:"enum=debug,enum=info,enum=warn,enum=error"`
	// Format is the form of a line. With auto it is text on a terminal and json elsewhere.
	Format string `json:"format" jsonschema:"enum=auto,enum=json,enum=text"`
}

// Tracing sets up what the process tells a tracing system. Where spans go, and how many, is said by the variables of the environment that
// OpenTelemetry has for it: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER and others.
type Tracing struct {
	// Enabled turns tracing on. Without it the variables mean nothing.
	Enabled bool `json:"enabled"`
}

// Topic holds the retry policy of one origin, or of one consumer group of an origin, and where its dead letters may be replayed to.
type Topic struct {
	// Origin is the topic whose records fail and come back.
	Origin string `json:"origin" jsonschema:"required"`
	// Group is the consumer group whose failures these are. It is needed where {group} stands in a name, and where an origin has
	// more than one entry.
	Group string `json:"group"`
	// Tiers are the waits before the second, third and each further delivery: a duration, or {name, delay, topic, jitter}.
	Tiers []Tier `json:"tiers" jsonschema:"minItems=1"`
	// Names are the templates of the topic names.
	Names Names `json:"names"`
	// ReturnTo is the topic a record returns to when it is due, as a template of {origin} and {group}: the origin, or a
	// topic of the group's own where several groups read the origin. Empty means the origin.
	ReturnTo string `json:"returnTo"`
	// ReplayTo are further topics that dead letters of the entry may be replayed to. Without it they return to where the retries do, and
	// nowhere else.
	ReplayTo []string `json:"replayTo"`
	// ReplyTo are the topics that a record on the replay trigger topic may ask the outcome to be written to.
	ReplyTo []string `json:"replyTo"`
	// MaxAttempts is how often a record is delivered in all before it becomes a dead letter. If it is above the number of tiers
	// plus one, the last tier repeats; if it is below, the later tiers are not reached. The default
	// is the number of tiers plus one.
	MaxAttempts int `json:"maxAttempts" jsonschema:"minimum=1"`
	// MaxDeliveries is how many deliveries of a record may fail over all its replays; then it is a dead letter, whatever its attempt. It
	// ends a loop of replays, and can not be below maxAttempts.
	MaxDeliveries int `json:"maxDeliveries" jsonschema:"minimum=1"`
	// MaxDelay is the longest wait a record's own headers can ask for. It can not be below the longest tier with its jitter, which is
	// the default.
	MaxDelay Duration `json:"maxDelay"`
	// Paused keeps back what is due, so that a dependency that is down is left alone. The inbox is read on, and dead letters go on.
	Paused bool `json:"paused"`
	// RateLimit is the most records a second that return to the origin, over all replicas, so that a dependency that comes back is not run
	// over. With 0 there is no limit.
	RateLimit float64 `json:"rateLimit" jsonschema:"minimum=0"`
	// Ordering is the order that is promised among records of one key. With none, records that wait for different times may
	// overtake each other.
	Ordering Ordering `json:"ordering"`
	// Partitioner is how the producers of the origin choose a partition for a key: murmur2 is that of the Java client, crc32
	// that of librdkafka, fnv1a that of Sarama.
	Partitioner string `json:"partitioner" jsonschema:"enum=murmur2,enum=crc32,enum=fnv1a"`
	// MaxHeldBytesPerPartition is forwarder.maxHeldBytesPerPartition for the topics of this entry, and by default the same.
	MaxHeldBytesPerPartition Bytes `json:"maxHeldBytesPerPartition"`
}

// Tier describes one wait and the topic its records wait in.
type Tier struct {
	// Name stands for {tier} in the topic's name. The default is the delay in its shortest form: 10s, 90m, 7d.
	Name string `json:"name"`
	// Delay is how long a record waits.
	Delay Duration `json:"delay" jsonschema:"required"`
	// Topic is the name of the topic, as a template; the default is names.tier.
	Topic string `json:"topic"`
	// Jitter is the most that is added to the delay at random, so that what failed together does not come back together.
	Jitter Duration `json:"jitter"`
}

// Names holds the templates of the names of the topics beside an origin.
type Names struct {
	// Inbox is the topic that consumers hand failed records to, as a template of {origin} and {group}.
	Inbox string `json:"inbox"`
	// Tier is the topic of a tier, as a template of {origin}, {group} and {tier}.
	Tier string `json:"tier"`
	// DeadLetters is the topic of the records that are given up, as a template of {origin} and {group}.
	DeadLetters string `json:"deadLetters"`
	// ReplayTrigger is the topic on which a record asks for the replay of a key or a message, as a template of {origin}, {group} and
	// {deadLetters}.
	ReplayTrigger string `json:"replayTrigger"`
}
