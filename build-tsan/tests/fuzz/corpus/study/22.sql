UPDATE version_info SET schema_version = NULL;
