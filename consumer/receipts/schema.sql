CREATE TABLE redrive_receipts (
  consumer    varchar(255)  NOT NULL, -- the consumer group, or another name of what has the effect
  message_id  varchar(1024) NOT NULL, -- redrive-message-id, else topic/partition/offset
  original_ms bigint        NOT NULL, -- redrive-original-timestamp, milliseconds since 1970; 0 is not known
  received_ms bigint        NOT NULL, -- by the clock of this database
  PRIMARY KEY (consumer, message_id, original_ms)
);

CREATE INDEX redrive_receipts_received ON redrive_receipts (consumer, received_ms);

CREATE TABLE redrive_receipt_marks (
  consumer   varchar(255) NOT NULL,
  topic      varchar(249) NOT NULL,
  part       integer      NOT NULL, -- the partition
  end_offset bigint       NOT NULL, -- where it ended at taken_ms
  taken_ms   bigint       NOT NULL,
  passed_ms  bigint       NOT NULL, -- everything written before this has been handled; 0 is not known
  PRIMARY KEY (consumer, topic, part)
);
