-- what the service calls a message that it has taken (an id, a place in a thread), so that later words can go there
ALTER TABLE deliveries ADD COLUMN receipt VARCHAR;
