-- Autovacuum of the tables that grow with every run, as 0006 has it for the others: by what is new, not by a share of months.
alter table submission set (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
alter table binding set (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
alter table conversation_alias set (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
-- these lose their oldest rows to retention, or are marked as refunded
alter table moderation_verdict set (
    autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
alter table quota_charge set (
    autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
alter table evidence set (autovacuum_vacuum_scale_factor = 0.02);
alter table item set (autovacuum_vacuum_scale_factor = 0.02);
-- statistics follow the rows
alter table snapshot set (autovacuum_analyze_scale_factor = 0.02);
alter table conversation set (autovacuum_analyze_scale_factor = 0.02);
alter table quota_usage set (autovacuum_analyze_scale_factor = 0.02);
