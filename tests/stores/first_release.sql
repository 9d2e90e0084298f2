BEGIN TRANSACTION;
CREATE TABLE calls (trace_id TEXT PRIMARY KEY NOT NULL, status TEXT, started_at REAL, ended_at REAL, protocol_in TEXT, protocol_out TEXT, model_requested TEXT, model_used TEXT, model_version TEXT, provider TEXT, endpoint_id TEXT, inference_region TEXT, sovereignty_class TEXT, policy_id TEXT, retention TEXT, key_name TEXT, cost_estimate TEXT, usage TEXT, usage_source TEXT, timing TEXT, attempts TEXT, dropped TEXT, finish_reason TEXT, finish_reason_source TEXT, complete INTEGER, fault TEXT, error TEXT, http_status INTEGER, streamed INTEGER, bytes_out INTEGER, deltas INTEGER);
INSERT INTO "calls" VALUES('t2','started',5.0,NULL,'ollama',NULL,'',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"input_tokens":null,"output_tokens":null,"cached_tokens":null,"reasoning_tokens":null,"parts":{"input":null,"cache_read":null,"cache_write":null,"output":null}}','none','{"time_to_first_token_ms":null,"first_token_kind":null,"request_duration_ms":null,"upstream_connect_ms":null,"upstream_response_ms":null}',NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,0,0,0);
INSERT INTO "calls" VALUES('t1','incomplete',1772366400.1234,1772366401.0,'anthropic','openai-chat','claude-x','qwen','v1','mlx','mlx-1','eu-de','eu-owned','eu-only','none','ci','{"amount":0.3,"currency":"EUR","input_amount":0.1,"output_amount":0.2}','{"input_tokens":10,"output_tokens":20,"cached_tokens":3,"reasoning_tokens":4,"parts":{"input":7,"cache_read":3,"cache_write":0,"output":20}}','reported','{"time_to_first_token_ms":12.5,"first_token_kind":"content","request_duration_ms":300.0,"upstream_connect_ms":null,"upstream_response_ms":11.0}','[{"endpoint_id":"mlx-0","region":"eu-de","outcome":"timeout","reason":"upstream_timeout","ms":99.5},{"endpoint_id":"mlx-1","region":null,"outcome":"ok","reason":null,"ms":null}]','["top_k"]','length','assumed',1,'upstream','{"code":"incomplete_stream","message":"The stream ended early: ä\u0000 ."}',200,1,1234,42);
INSERT INTO "calls" VALUES('t0','started',0.0,NULL,'',NULL,'',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"input_tokens":null,"output_tokens":null,"cached_tokens":null,"reasoning_tokens":null,"parts":{"input":null,"cache_read":null,"cache_write":null,"output":null}}','none','{"time_to_first_token_ms":null,"first_token_kind":null,"request_duration_ms":null,"upstream_connect_ms":null,"upstream_response_ms":null}',NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,0,0,0);
CREATE TABLE response_events (
    owner TEXT NOT NULL, response_id TEXT NOT NULL, first INTEGER NOT NULL, frames BLOB NOT NULL,
    PRIMARY KEY (owner, response_id, first));
INSERT INTO "response_events" VALUES('anna','r1',0,X'616263');
CREATE TABLE response_items (
    owner TEXT NOT NULL, item_id TEXT NOT NULL, response_id TEXT NOT NULL, PRIMARY KEY (owner, item_id, response_id)
    ) WITHOUT ROWID;
INSERT INTO "response_items" VALUES('anna','m1','r1');
CREATE TABLE responses (
    owner TEXT NOT NULL, id TEXT NOT NULL, created_at REAL NOT NULL, expires_at REAL NOT NULL, running_until REAL,
    background INTEGER NOT NULL, cancel INTEGER NOT NULL DEFAULT 0, size_bytes INTEGER NOT NULL, events_bytes INTEGER NOT NULL
    DEFAULT 0, response BLOB NOT NULL, input_items BLOB NOT NULL, PRIMARY KEY (owner, id));
INSERT INTO "responses" VALUES('anna','r1',1000.0,10000001000.0,NULL,1,0,16,3,X'7B226964223A227231227D',X'5B2278225D');
CREATE TABLE schema_version (version INTEGER NOT NULL);
INSERT INTO "schema_version" VALUES(1);
CREATE INDEX calls_by_time ON calls (started_at DESC, trace_id DESC);
CREATE INDEX calls_by_end ON calls (ended_at);
CREATE INDEX responses_by_age ON responses (created_at, expires_at, running_until, size_bytes, events_bytes);
CREATE INDEX response_items_by_response ON response_items (owner, response_id);
CREATE TRIGGER responses_gone AFTER DELETE ON responses BEGIN
    DELETE FROM response_items WHERE owner = OLD.owner AND response_id = OLD.id;
    DELETE FROM response_events WHERE owner = OLD.owner AND response_id = OLD.id;
END;
COMMIT;
