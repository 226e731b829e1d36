-- A table with a history: triggers keep each version that a row of "document" has had.
--
-- A kept version has the value of the row, and no copy of its content: a row with a descriptor, 150
-- bytes or so, for 10 kB as for 10 GB.  A new content is written once, as without a history.
CREATE TABLE document (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    content blobstate,
    since timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE document_history (
    id bigint NOT NULL,
    name text NOT NULL,
    content blobstate,
    since timestamptz NOT NULL,
    until timestamptz NOT NULL
);
CREATE INDEX ON document_history (id, until);
CREATE INDEX ON document_history (until);
COMMENT ON TABLE document_history IS 'rows of document as they were from since to until';

-- Roles that change documents need INSERT on document_history, and no more.  A version is of the
-- time of its transaction; one that began before the last change was committed comes after it.
CREATE FUNCTION begin_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.since := CASE WHEN TG_OP = 'INSERT' THEN now() ELSE greatest(now(), OLD.since) END;
    RETURN NEW;
END $$;
CREATE FUNCTION keep_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.document_history (id, name, content, since, until)
    VALUES (OLD.id, OLD.name, OLD.content, OLD.since,
        CASE WHEN TG_OP = 'UPDATE' THEN NEW.since ELSE greatest(now(), OLD.since) END);
    RETURN NULL;
END $$;
CREATE FUNCTION keep_all_versions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.document_history (id, name, content, since, until)
    SELECT d.id, d.name, d.content, d.since, greatest(now(), d.since) FROM public.document AS d;
    RETURN NULL;
END $$;

CREATE TRIGGER begin_version BEFORE INSERT OR UPDATE ON document
    FOR EACH ROW EXECUTE FUNCTION begin_version();
CREATE TRIGGER keep_version AFTER UPDATE OR DELETE ON document
    FOR EACH ROW EXECUTE FUNCTION keep_version();
CREATE TRIGGER keep_all_versions BEFORE TRUNCATE ON document
    FOR EACH STATEMENT EXECUTE FUNCTION keep_all_versions();

-- The documents of a moment.  Versions that their own transaction replaced are of no moment.
CREATE FUNCTION documents_at(moment timestamptz)
    RETURNS TABLE (id bigint, name text, content blobstate) LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT d.id, d.name, d.content FROM document AS d WHERE d.since <= moment
    UNION ALL
    SELECT h.id, h.name, h.content FROM document_history AS h
    WHERE h.since <= moment AND moment < h.until;
END;
